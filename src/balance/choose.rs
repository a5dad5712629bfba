//! Which of several channels gets a call.

use super::circuit::CircuitStanding;

/// What a choice looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct View {
    /// The target's priority: a lower one comes first.
    pub(super) priority: u32,
    /// The share among those of one priority. At least 1.
    pub(super) weight: u32,
    /// The number of calls under way.
    pub(super) in_flight: u32,
    /// Whether a call is worth making.
    pub(super) standing: CircuitStanding,
    /// Something that is its own, and the same at every gateway.
    pub(super) seed: u64,
}

/// A conversation stays with its channel until that has this many times the load of the others, and
/// a few calls more.
const AFFINITY_LOAD_MAX: f64 = 2.0;
const AFFINITY_IN_FLIGHT_MIN: u32 = 8;

/// The index of the channel that gets the next call, of those in `views`; `None` when no call is
/// worth making. A conversation with an `affinity` goes to the same channel as long as that is in
/// order. `draw` returns a number from 0 up to but not including 1.
///
/// The best priority that has a channel in order is taken. Within it two are drawn by weight, and
/// the one with less to do wins: that spreads load as well as looking at all of them, without all
/// gateways running to the same one.
pub(super) fn choose(
    views: &[(usize, View)],
    affinity: Option<u64>,
    mut draw: impl FnMut() -> f64,
) -> Option<usize> {
    let ready = best_priority(views, |standing| matches!(standing, CircuitStanding::Ready { .. }));
    let due = best_priority(views, |standing| matches!(standing, CircuitStanding::ProbeDue));
    // One call finds out whether a better channel, or an equal one, has recovered. It can still go
    // elsewhere if not.
    if let Some(priority) = due.filter(|due| ready.is_none_or(|ready| *due <= ready)) {
        let is_it =
            |view: &View| view.priority == priority && view.standing == CircuitStanding::ProbeDue;
        return views.iter().find(|(_, view)| is_it(view)).map(|(index, _)| *index);
    }
    let tier = tier(views);
    match tier.as_slice() {
        [] => None,
        [(only, ..)] => Some(*only),
        _ => {
            let kept = affinity.and_then(|affinity| kept_by(affinity, &tier));
            kept.or_else(|| two_choices(&tier, &mut draw))
        }
    }
}

fn best_priority(views: &[(usize, View)], fits: fn(&CircuitStanding) -> bool) -> Option<u32> {
    views.iter().filter(|(_, view)| fits(&view.standing)).map(|(_, view)| view.priority).min()
}

/// The channels among which a call is drawn, with their weights: those in order of the best priority
/// that has one, or else those of the best priority that were only busy a moment ago.
fn tier(views: &[(usize, View)]) -> Vec<(usize, View, f64)> {
    let ready = best_priority(views, |standing| matches!(standing, CircuitStanding::Ready { .. }));
    let cooling = best_priority(views, |standing| matches!(standing, CircuitStanding::Cooling));
    let weighed = views.iter().filter_map(|(index, view)| {
        let share = match view.standing {
            CircuitStanding::Ready { share } if Some(view.priority) == ready => share,
            CircuitStanding::Cooling if ready.is_none() && Some(view.priority) == cooling => 1.0,
            _ => return None,
        };
        Some((*index, *view, f64::from(view.weight) * share))
    });
    weighed.collect()
}

/// The share of calls that each of `views` gets by its weight, from 0 to 1, in their order. The one
/// call that finds out whether a channel has recovered is not counted.
pub(super) fn shares(views: &[(usize, View)]) -> Vec<f64> {
    let tier = tier(views);
    let total: f64 = tier.iter().map(|(.., weight)| weight).sum();
    let share = |index: usize| {
        let found = tier.iter().find(|(at, ..)| *at == index);
        found.map_or(0.0, |(.., weight)| weight / total.max(f64::EPSILON))
    };
    views.iter().map(|(index, _)| share(*index)).collect()
}

/// The channel that a conversation belongs to (weighted rendezvous hashing), unless it has too much
/// to do.
fn kept_by(affinity: u64, tier: &[(usize, View, f64)]) -> Option<usize> {
    let score = |view: &View| -> f64 {
        let mixed = mix(affinity ^ view.seed);
        // 53 bits, as many as a float holds, in the open interval from 0 to 1.
        let unit = ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -f64::from(view.weight) / unit.ln()
    };
    let winner = tier.iter().max_by(|(_, a, _), (_, b, _)| score(a).total_cmp(&score(b)))?;
    let load: u32 = tier.iter().map(|(_, view, _)| view.in_flight).sum();
    let weights: f64 = tier.iter().map(|(.., weight)| weight).sum();
    let fair = f64::from(load) * winner.2 / weights.max(f64::EPSILON);
    let bound = f64::from(AFFINITY_IN_FLIGHT_MIN) + AFFINITY_LOAD_MAX * fair;
    (f64::from(winner.1.in_flight) <= bound).then_some(winner.0)
}

fn two_choices(tier: &[(usize, View, f64)], draw: &mut impl FnMut() -> f64) -> Option<usize> {
    let first = drawn(tier, None, draw)?;
    let second = drawn(tier, Some(first), draw)?;
    let load = |at: usize| {
        let (_, view, weight) = tier.get(at)?;
        Some(f64::from(view.in_flight + 1) / weight)
    };
    let winner = match (load(first), load(second)) {
        // With nothing to do both ways, the draw by weight decides.
        (Some(a), Some(b)) if b < a && tier.iter().any(|(_, view, _)| view.in_flight > 0) => second,
        _ => first,
    };
    tier.get(winner).map(|(index, ..)| *index)
}

/// Draws by weight, leaving one out.
fn drawn(
    tier: &[(usize, View, f64)],
    without: Option<usize>,
    draw: &mut impl FnMut() -> f64,
) -> Option<usize> {
    let left = || tier.iter().enumerate().filter(|(at, _)| Some(*at) != without);
    let total: f64 = left().map(|(_, (.., weight))| weight).sum();
    let mut ticket = draw() * total;
    let mut last = None;
    for (at, (.., weight)) in left() {
        last = Some(at);
        if ticket < *weight {
            break;
        }
        ticket -= weight;
    }
    last
}

/// The finalizer of SplitMix64: every bit of the result depends on every bit of what goes in.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const READY: CircuitStanding = CircuitStanding::Ready { share: 1.0 };

    fn view(priority: u32, weight: u32, standing: CircuitStanding) -> View {
        View { priority, weight, in_flight: 0, standing, seed: 0 }
    }

    fn numbered(views: &[View]) -> Vec<(usize, View)> {
        let seeded = |(at, view): (usize, &View)| (at, View { seed: at as u64 + 1, ..*view });
        views.iter().enumerate().map(seeded).collect()
    }

    fn spread(views: &[View], affinity: impl Fn(u64) -> Option<u64>) -> Vec<usize> {
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
    fn who_has_less_to_do_wins() {
        let loaded = View { in_flight: 9, ..view(0, 1, READY) };
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
