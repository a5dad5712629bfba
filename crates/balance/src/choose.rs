//! Selection of one of several channels for a call.

use super::breaker::CircuitStanding;

/// Inputs of the selection for one channel. Channels of one target are adjacent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ChannelView {
    /// Index of the channel's target.
    pub(super) target: usize,
    /// Priority of the target; lower values come first.
    pub(super) priority: u32,
    /// Weight of the target among those of its priority, independent of its number of channels. At least
    /// 1.
    pub(super) weight: u32,
    /// Number of calls in flight.
    pub(super) in_flight: u32,
    /// Circuit status for the call.
    pub(super) standing: CircuitStanding,
    /// False if the operator's quota at the provider is too low for the call.
    pub(super) has_quota: bool,
    /// Seed of the channel, equal on every gateway.
    pub(super) seed: u64,
    /// Seed of the target, equal on every gateway.
    pub(super) target_seed: u64,
}

/// A channel in the draw: its index, its view, and its slow-start share.
type TierMember = (usize, ChannelView, f64);

/// A target in the draw, with its channels.
struct TargetGroup<'a> {
    members: &'a [TierMember],
    weight: f64,
    in_flight: u32,
}

/// Load factor up to which a conversation stays with its channel, and the calls allowed beyond it.
const AFFINITY_LOAD_MAX: f64 = 2.0;
const AFFINITY_IN_FLIGHT_MIN: u32 = 8;
/// Load factor above its fair share up to which a drawn target or channel takes the call, plus one call:
/// with a smaller margin, chance alone would shift the shares.
const DRAWN_LOAD_MAX: f64 = 1.5;

/// Select the channel for the next call and return its index; `None` if no channel is available. A
/// conversation with an `affinity` stays with its channel while that is healthy. `draw` returns a number
/// from 0 up to but not including 1.
///
/// The best priority with a healthy channel is used. Within it a target is drawn by weight, and then one
/// of its channels; an overloaded one yields to another. Channels with an exhausted quota are used only
/// if no other is available.
pub(super) fn choose(
    views: &[(usize, ChannelView)],
    affinity: Option<u64>,
    mut draw: impl FnMut() -> f64,
) -> Option<usize> {
    if views.iter().all(|(_, view)| view.has_quota) {
        return choose_among(views, affinity, &mut draw);
    }
    let able = with_quota(views);
    choose_among(&able, affinity, &mut draw).or_else(|| choose_among(views, affinity, &mut draw))
}

fn with_quota(views: &[(usize, ChannelView)]) -> Vec<(usize, ChannelView)> {
    views.iter().filter(|(_, view)| view.has_quota).copied().collect()
}

fn choose_among(
    views: &[(usize, ChannelView)],
    affinity: Option<u64>,
    draw: &mut impl FnMut() -> f64,
) -> Option<usize> {
    let ready = best_priority(views, |standing| matches!(standing, CircuitStanding::Ready { .. }));
    let due = best_priority(views, |standing| matches!(standing, CircuitStanding::ProbeDue));
    // One call probes whether a better or equal channel has recovered; it can still be retried
    // elsewhere.
    if let Some(priority) = due.filter(|due| ready.is_none_or(|ready| *due <= ready)) {
        let is_it = |view: &ChannelView| {
            view.priority == priority && view.standing == CircuitStanding::ProbeDue
        };
        return views.iter().find(|(_, view)| is_it(view)).map(|(index, _)| *index);
    }
    let tier = tier(views);
    match tier.as_slice() {
        [] => None,
        [(only, ..)] => Some(*only),
        _ => {
            let groups = groups(&tier);
            let affine = affinity.and_then(|affinity| stay_with_affinity(affinity, &groups));
            affine.or_else(|| drawn_by_weight(&groups, draw))
        }
    }
}

fn best_priority(
    views: &[(usize, ChannelView)],
    fits: fn(&CircuitStanding) -> bool,
) -> Option<u32> {
    views.iter().filter(|(_, view)| fits(&view.standing)).map(|(_, view)| view.priority).min()
}

/// Channels in the draw: the ready ones of the best priority, or else the cooling ones of the best
/// priority.
fn tier(views: &[(usize, ChannelView)]) -> Vec<TierMember> {
    let ready = best_priority(views, |standing| matches!(standing, CircuitStanding::Ready { .. }));
    let cooling = best_priority(views, |standing| matches!(standing, CircuitStanding::Cooling));
    let weighed = views.iter().filter_map(|(index, view)| {
        let share = match view.standing {
            CircuitStanding::Ready { share } if Some(view.priority) == ready => share,
            CircuitStanding::Cooling if ready.is_none() && Some(view.priority) == cooling => 1.0,
            _ => return None,
        };
        Some((*index, *view, share))
    });
    weighed.collect()
}

/// Targets of a tier. A target keeps its whole weight while one of its channels is fully ready: its
/// other channels take over what a channel in slow start does not.
fn groups(tier: &[TierMember]) -> Vec<TargetGroup<'_>> {
    let of_one_target = tier.chunk_by(|(_, a, _), (_, b, _)| a.target == b.target);
    let group = |members: &'_ [TierMember]| {
        let best = members.iter().map(|(.., share)| *share).fold(0.0, f64::max);
        let weight = members.first().map_or(0.0, |(_, view, _)| f64::from(view.weight));
        let in_flight = members.iter().map(|(_, view, _)| view.in_flight).sum();
        (weight * best, in_flight)
    };
    of_one_target
        .map(|members| {
            let (weight, in_flight) = group(members);
            TargetGroup { members, weight, in_flight }
        })
        .collect()
}

/// Share of calls of each view by weight, from 0 to 1, in order; half-open probes are not counted.
pub(super) fn shares(views: &[(usize, ChannelView)]) -> Vec<f64> {
    let (able, all) = (tier(&with_quota(views)), tier(views));
    let tier = if able.is_empty() { all } else { able };
    let groups = groups(&tier);
    let total: f64 = groups.iter().map(|group| group.weight).sum();
    let share = |index: usize| {
        groups.iter().find_map(|group| {
            let (.., own) = group.members.iter().find(|(at, ..)| *at == index)?;
            let of_all: f64 = group.members.iter().map(|(.., share)| share).sum();
            let part = own / of_all.max(f64::EPSILON);
            Some(part * group.weight / total.max(f64::EPSILON))
        })
    };
    views.iter().map(|(index, _)| share(*index).unwrap_or(0.0)).collect()
}

/// Channel of a conversation by weighted rendezvous hashing, of the targets and then of the target's
/// channels; `None` if it is overloaded.
fn stay_with_affinity(affinity: u64, groups: &[TargetGroup<'_>]) -> Option<usize> {
    let score = |seed: u64, weight: u32| -> f64 {
        let mixed = mix(affinity ^ seed);
        // 53 bits, as many as a float holds, in the open interval from 0 to 1.
        let unit = ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -f64::from(weight) / unit.ln()
    };
    let of_group = |group: &TargetGroup<'_>| {
        group.members.first().map_or(0.0, |(_, view, _)| score(view.target_seed, view.weight))
    };
    let group = groups.iter().max_by(|a, b| of_group(a).total_cmp(&of_group(b)))?;
    let of_member = |member: &TierMember| score(member.1.seed, 1);
    let members = group.members.iter();
    let (index, view, share) = members.max_by(|a, b| of_member(a).total_cmp(&of_member(b)))?;
    let load: u32 = groups.iter().map(|group| group.in_flight).sum();
    let weights: f64 = groups.iter().map(|group| group.weight).sum();
    let shares: f64 = group.members.iter().map(|(.., share)| share).sum();
    let part = group.weight / weights.max(f64::EPSILON) * share / shares.max(f64::EPSILON);
    let bound = f64::from(AFFINITY_IN_FLIGHT_MIN) + AFFINITY_LOAD_MAX * f64::from(load) * part;
    (f64::from(view.in_flight) <= bound).then_some(*index)
}

fn drawn_by_weight(groups: &[TargetGroup<'_>], draw: &mut impl FnMut() -> f64) -> Option<usize> {
    let group = drawn(groups, |group| (group.weight, group.in_flight), draw)?;
    let member = drawn(group.members, |(_, view, share)| (*share, view.in_flight), draw)?;
    Some(member.0)
}

/// Draw an element by weight. If its calls in flight exceed its share, draw a second one and take the
/// less loaded.
fn drawn<'a, T>(
    all: &'a [T],
    of: impl Fn(&T) -> (f64, u32),
    draw: &mut impl FnMut() -> f64,
) -> Option<&'a T> {
    let at = ticket(all, None, &of, draw)?;
    let first = all.get(at)?;
    let (weight, in_flight) = of(first);
    let weights: f64 = all.iter().map(|one| of(one).0).sum();
    let calls: u32 = all.iter().map(|one| of(one).1).sum();
    let part = f64::from(calls + 1) * weight / weights.max(f64::EPSILON);
    if f64::from(in_flight) <= 1.0 + DRAWN_LOAD_MAX * part {
        return Some(first);
    }
    let load = |one: &T| {
        let (weight, in_flight) = of(one);
        f64::from(in_flight + 1) / weight
    };
    let second = ticket(all, Some(at), &of, draw).and_then(|at| all.get(at));
    second.filter(|second| load(second) < load(first)).or(Some(first))
}

/// Index of an element drawn by weight, excluding `without`.
fn ticket<T>(
    all: &[T],
    without: Option<usize>,
    of: &impl Fn(&T) -> (f64, u32),
    draw: &mut impl FnMut() -> f64,
) -> Option<usize> {
    let left = || all.iter().enumerate().filter(|(at, _)| Some(*at) != without);
    let total: f64 = left().map(|(_, one)| of(one).0).sum();
    // Sums of floats may end below `total`, so the last element takes what is left.
    let mut ticket = draw() * total;
    let mut last = None;
    for (at, one) in left() {
        let (weight, _) = of(one);
        last = Some(at);
        if ticket < weight {
            break;
        }
        ticket -= weight;
    }
    last
}

/// Finalizer of SplitMix64: every bit of the result depends on every bit of the input.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const READY: CircuitStanding = CircuitStanding::Ready { share: 1.0 };

    fn view(priority: u32, weight: u32, standing: CircuitStanding) -> ChannelView {
        let (in_flight, has_quota) = (0, true);
        let (target, seed, target_seed) = (0, 0, 0);
        ChannelView { target, priority, weight, in_flight, standing, has_quota, seed, target_seed }
    }

    /// Views of channels with one target each.
    fn numbered(views: &[ChannelView]) -> Vec<(usize, ChannelView)> {
        let seeded = |(at, view): (usize, &ChannelView)| {
            let seed = at as u64 + 1;
            (at, ChannelView { target: at, seed, target_seed: seed, ..*view })
        };
        views.iter().enumerate().map(seeded).collect()
    }

    /// Views of targets with these weights and numbers of channels.
    fn pools(targets: &[(u32, usize)]) -> Vec<(usize, ChannelView)> {
        let channels = targets.iter().enumerate().flat_map(|(target, (weight, count))| {
            let own =
                ChannelView { target, target_seed: target as u64 + 1, ..view(0, *weight, READY) };
            std::iter::repeat_n(own, *count)
        });
        let seeded =
            |(at, view): (usize, ChannelView)| (at, ChannelView { seed: at as u64 + 100, ..view });
        channels.enumerate().map(seeded).collect()
    }

    /// Share of 20,000 calls that each target gets, with `at_once` calls in flight.
    fn parts(
        views: &mut [(usize, ChannelView)],
        at_once: usize,
        affinity: impl Fn(u64) -> Option<u64>,
    ) -> Vec<f64> {
        const CALLS: u32 = 20_000;
        let mut rng = fastrand::Rng::with_seed(11);
        let targets = views.iter().map(|(_, view)| view.target + 1).max().expect("a target");
        let (mut counts, mut under_way) = (vec![0_u32; targets], Vec::new());
        for call in 0..CALLS {
            let at = choose(views, affinity(call.into()), || rng.f64()).expect("a channel");
            counts[views[at].1.target] += 1;
            views[at].1.in_flight += 1;
            under_way.push(at);
            if under_way.len() >= at_once {
                let ended = under_way.swap_remove(rng.usize(..under_way.len()));
                views[ended].1.in_flight -= 1;
            }
        }
        counts.iter().map(|count| f64::from(*count) / f64::from(CALLS)).collect()
    }

    fn spread(views: &[ChannelView], affinity: impl Fn(u64) -> Option<u64>) -> Vec<usize> {
        let (views, mut rng) = (numbered(views), fastrand::Rng::with_seed(7));
        let mut counts = vec![0; views.len()];
        for call in 0..10_000 {
            if let Some(at) = choose(&views, affinity(call), || rng.f64()) {
                counts[at] += 1;
            }
        }
        counts
    }

    #[test]
    fn the_best_tier_that_is_in_order_gets_the_calls() {
        let open = CircuitStanding::Open(Duration::from_secs(1));
        let views = [view(0, 1, open), view(1, 1, READY), view(2, 1, READY)];
        assert_eq!(spread(&views, |_| None), [0, 10_000, 0]);
        let views = [view(0, 1, open), view(1, 1, CircuitStanding::Cooling), view(2, 1, READY)];
        assert_eq!(spread(&views, |_| None), [0, 0, 10_000]);
        let views = [view(0, 1, open), view(1, 1, CircuitStanding::Cooling)];
        assert_eq!(spread(&views, |_| None), [0, 10_000], "better than none");
        let busy = CircuitStanding::Busy(Duration::from_secs(1));
        assert_eq!(choose(&numbered(&[view(0, 1, busy), view(1, 1, open)]), None, || 0.0), None);
    }

    #[test]
    fn one_call_finds_out_whether_a_channel_has_recovered() {
        let due = CircuitStanding::ProbeDue;
        let views = [view(0, 1, READY), view(0, 1, due), view(1, 1, due)];
        assert_eq!(choose(&numbered(&views), Some(1), || 0.0), Some(1));
        let views = [view(0, 1, READY), view(1, 1, due)];
        assert_eq!(choose(&numbered(&views), None, || 0.0), Some(0), "a worse one is not needed");
    }

    #[test]
    fn weights_and_slow_start_are_spread() {
        let counts = spread(&[view(0, 3, READY), view(0, 1, READY)], |_| None);
        assert!((7_300..7_700).contains(&counts[0]), "{counts:?}");
        let slow = CircuitStanding::Ready { share: 0.1 };
        let counts = spread(&[view(0, 1, READY), view(0, 1, slow)], |_| None);
        assert!((8_900..9_300).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn the_shares_that_are_shown_are_those_of_the_draw() {
        let slow = CircuitStanding::Ready { share: 0.5 };
        let views = [view(0, 3, READY), view(0, 2, slow), view(1, 1, READY)];
        assert_eq!(shares(&numbered(&views)), [0.75, 0.25, 0.0]);
        let open = CircuitStanding::Open(Duration::from_secs(1));
        let views = [view(0, 1, open), view(1, 1, CircuitStanding::Cooling)];
        assert_eq!(shares(&numbered(&views)), [0.0, 1.0], "better than none");
        assert_eq!(shares(&numbered(&[view(0, 1, open)])), [0.0], "nobody gets any");
    }

    #[test]
    fn a_weight_is_the_share_of_a_target_however_many_channels_it_has() {
        for keys in [1, 2, 4, 9] {
            for at_once in [1, 2, 3, 8, 40] {
                let part = parts(&mut pools(&[(3, keys), (1, 1)]), at_once, |_| None);
                assert!((0.72..0.78).contains(&part[0]), "{keys} keys, {at_once}: {part:?}");
            }
            let part = parts(&mut pools(&[(3, keys), (1, 1)]), 1, |call| Some(mix(call)));
            assert!((0.73..0.77).contains(&part[0]), "conversations, {keys} keys: {part:?}");
        }
    }

    #[test]
    fn a_target_keeps_its_share_while_one_of_its_channels_has_none() {
        let open = CircuitStanding::Open(Duration::from_secs(1));
        let slow = CircuitStanding::Ready { share: 0.1 };
        for standing in [open, slow] {
            let mut views = pools(&[(3, 2), (1, 1)]);
            views[0].1.standing = standing;
            let part = parts(&mut views, 1, |_| None);
            assert!((0.73..0.77).contains(&part[0]), "{standing:?}: {part:?}");
            views[1].1.standing = slow;
            let part = parts(&mut views, 1, |_| None);
            assert!((0.20..0.26).contains(&part[0]), "all of it begins slowly: {part:?}");
        }
    }

    #[test]
    fn a_channel_without_quota_is_the_last_resort() {
        let short = ChannelView { has_quota: false, ..view(0, 3, READY) };
        assert_eq!(spread(&[short, view(0, 1, READY)], |_| None), [0, 10_000]);
        assert_eq!(spread(&[short, view(1, 1, READY)], |_| None), [0, 10_000], "a worse priority");
        assert_eq!(spread(&[short, view(1, 1, READY)], Some), [0, 10_000], "conversations too");
        assert_eq!(shares(&numbered(&[short, view(1, 1, READY)])), [0.0, 1.0]);
        let open = CircuitStanding::Open(Duration::from_secs(1));
        assert_eq!(spread(&[short, view(1, 1, open)], |_| None), [10_000, 0], "it is tried");
        assert_eq!(shares(&numbered(&[short])), [1.0]);
    }

    proptest! {
        #[test]
        fn shares_are_those_of_the_weights(
            targets in prop::collection::vec((1_u32..1000, 1_usize..6), 1..6),
        ) {
            let views = pools(&targets);
            let shares = shares(&views);
            let total: f64 = targets.iter().map(|(weight, _)| f64::from(*weight)).sum();
            for (target, (weight, count)) in targets.iter().enumerate() {
                let own = views.iter().filter(|(_, view)| view.target == target);
                let own: Vec<f64> = own.map(|(at, _)| shares[*at]).collect();
                prop_assert_eq!(own.len(), *count);
                let expected = f64::from(*weight) / total;
                prop_assert!((own.iter().sum::<f64>() - expected).abs() < 1e-9);
                prop_assert!(own.iter().all(|share| (share - own[0]).abs() < 1e-9));
            }
        }
    }

    #[test]
    fn the_less_loaded_channel_wins() {
        let loaded = ChannelView { in_flight: 9, ..view(0, 1, READY) };
        assert_eq!(spread(&[loaded, view(0, 1, READY)], |_| None), [0, 10_000]);
    }

    #[test]
    fn a_conversation_stays_where_it_is_and_conversations_spread_by_weight() {
        let views = numbered(&[view(0, 1, READY), view(0, 1, READY), view(0, 2, READY)]);
        let first = choose(&views, Some(42), fastrand::f64);
        assert!((0..100).all(|_| choose(&views, Some(42), fastrand::f64) == first));
        let counts = spread(&[view(0, 1, READY), view(0, 1, READY), view(0, 2, READY)], |call| {
            Some(mix(call))
        });
        assert!((4_700..5_300).contains(&counts[2]), "{counts:?}");
        let mut without = views.clone();
        without.retain(|(at, _)| Some(*at) == first);
        for (_, view) in &mut without {
            view.in_flight = 100;
        }
        let others = views.iter().filter(|(at, _)| Some(*at) != first);
        let overloaded: Vec<_> = without.iter().chain(others).copied().collect();
        assert_ne!(choose(&overloaded, Some(42), fastrand::f64), first, "too much to do");
    }
}
