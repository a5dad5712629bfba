//! Shares of a limit among the nodes of a fleet: the rule of every sync, under the lock of the limit. Pure;
//! the database stores the state.
//!
//! What all nodes have of a limit is never more than the limit: a share grows only out of what nobody
//! has, and what a node should give up it gives up itself, and then says so. What nobody has is a
//! bucket like the nodes' own: it is refilled at its own pace, and what is in it comes along with what
//! is claimed of it. So all shares together are refilled as fast as one bucket of the whole limit, have
//! room for no more than that, and let no request through that one bucket would have refused.
//!
//! A node is given what it wants in proportion to what all want, but at least what one of its requests
//! needs. Where that does not reach for all nodes, they take turns.

use tollgate_limits::{Limit, MICROS, ShareGrant, ShareRequest};

/// The length of a turn of nodes that cannot have a share at the same time: long enough that syncs do not
/// interfere, and that a client's retry meets another turn.
const TURN_MS: u64 = 10_000;
const MINUTE_MS: u64 = 60_000;

/// A node's row: its share of a limit, and its demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The number of the node that has the claim.
    pub node: i16,
    /// Its share: more than the node's own figure, if a response was lost.
    pub share: u32,
    /// Its demand; see [`ShareRequest::demand`].
    pub demand: u64,
    /// The size of its largest recent request.
    pub need: u32,
    /// Part that cannot be returned.
    pub floor: u32,
}

/// Unclaimed part of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The size, in units of the limit.
    pub units: u32,
    /// The content, in millionths of a unit.
    pub micros: u64,
    /// The time of the content, by the database's clock, in Unix milliseconds.
    pub at_ms: u64,
}

impl Pool {
    /// An unused limit.
    #[must_use]
    pub fn full(limit: u32, now_ms: u64) -> Self {
        Self { units: limit, micros: u64::from(limit) * MICROS, at_ms: now_ms }
    }

    /// True if the row can be deleted: it is the whole limit, and full.
    #[must_use]
    pub fn is_full(&self, limit: u32, now_ms: u64) -> bool {
        let pool = self.refilled(now_ms);
        pool.units == limit && pool.micros == u64::from(limit) * MICROS
    }

    fn refilled(self, now_ms: u64) -> Self {
        let passed_ms = now_ms.saturating_sub(self.at_ms).min(MINUTE_MS);
        let all = u64::from(self.units) * MICROS;
        // At most 2^32 · 10⁶ · 60,000 / 60,000: the product is below 2^69.
        let more = u128::from(all) * u128::from(passed_ms) / u128::from(MINUTE_MS);
        let micros = self.micros.saturating_add(u64::try_from(more).unwrap_or(u64::MAX)).min(all);
        Self { micros, at_ms: self.at_ms.max(now_ms), ..self }
    }

    fn resized(self, units: u32) -> Self {
        Self { units, micros: self.micros.min(u64::from(units) * MICROS), ..self }
    }
}

/// The result of a sync about one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareDecision {
    /// The unclaimed part from now on.
    pub pool: Pool,
    /// The node's row; `None` if it is deleted.
    pub row: Option<Claim>,
    /// The response to the node.
    pub grant: ShareGrant,
}

/// Settles one node's share of a limit at `now_ms`. `others` are the rows of other nodes that may still use
/// theirs, `had` is this node's share, if it may still use it; `nodes` is the number of nodes.
#[must_use]
pub fn settle(
    pool: Pool,
    now_ms: u64,
    others: &[Claim],
    node: i16,
    had: u32,
    request: &ShareRequest,
    nodes: u32,
) -> ShareDecision {
    let claimed = others.iter().fold(0_u32, |sum, claim| sum.saturating_add(claim.share));
    let keeps = request.share.min(had);
    let given_up_micros = u64::from(had - keeps) * MICROS;
    let mut pool = pool.refilled(now_ms);
    pool.micros = pool.micros.saturating_add(request.returned_micros.min(given_up_micros));
    pool = pool.resized(request.limit.saturating_sub(claimed).saturating_sub(keeps));
    if request.is_over {
        let grant = ShareGrant { share: 0, brought_micros: 0, target: 0, unclaimed: pool.units };
        return ShareDecision { pool, row: None, grant };
    }
    let ShareRequest { demand, need, floor, .. } = *request;
    let mine = Claim { node, share: keeps, demand, need, floor };
    let mut claims = others.to_vec();
    claims.push(mine);
    let nodes = nodes.max(u32::try_from(claims.len()).unwrap_or(u32::MAX));
    let targets = targets(request, &claims, nodes, now_ms / TURN_MS);
    let target = targets.last().copied().unwrap_or(0);
    let more = target.saturating_sub(keeps).min(pool.units);
    let is_rate = request.kind != Limit::Concurrency;
    let brought_micros = if is_rate { pool.micros.min(u64::from(more) * MICROS) } else { 0 };
    pool.micros -= brought_micros;
    pool = pool.resized(pool.units - more);
    let share = keeps + more;
    let short = others
        .iter()
        .zip(&targets)
        .fold(0_u32, |sum, (claim, target)| sum.saturating_add(target.saturating_sub(claim.share)));
    // What nobody misses is kept until most of it is unused: shares do not follow every request.
    let is_missed = short > pool.units;
    let is_much = u64::from(target) * 4 < u64::from(share) * 3;
    let target = if is_missed || is_much { target.min(share) } else { share };
    // What is not refilled yet is nothing to wait for.
    let filled = u32::try_from(pool.micros / MICROS).unwrap_or(u32::MAX);
    let unclaimed = if is_rate { filled } else { pool.units };
    let grant = ShareGrant { share, brought_micros, target, unclaimed };
    ShareDecision { pool, row: Some(Claim { share, ..mine }), grant }
}

/// The target of each node; their sum is at most the limit.
fn targets(request: &ShareRequest, claims: &[Claim], nodes: u32, turn: u64) -> Vec<u32> {
    let mut targets: Vec<u32> = claims.iter().map(|claim| claim.floor.min(request.limit)).collect();
    let sum = |targets: &[u32]| targets.iter().fold(0_u32, |sum, one| sum.saturating_add(*one));
    let mut left = request.limit.saturating_sub(sum(&targets));
    let mut order: Vec<_> = (0..claims.len()).collect();
    order.sort_by_key(|&index| claims[index].node);
    let first = usize::try_from(turn % claims.len().max(1) as u64).unwrap_or(0);
    order.rotate_left(first);
    let mut served = vec![false; claims.len()];
    for &index in &order {
        let needs = claims[index].need.min(request.limit).saturating_sub(targets[index]);
        if claims[index].demand > 0 && needs <= left {
            (served[index], left) = (true, left - needs);
            targets[index] += needs;
        }
    }
    let demand = |index: usize| if served[index] { u128::from(claims[index].demand) } else { 0 };
    let all: u128 = (0..claims.len()).map(demand).sum();
    if all == 0 {
        return targets;
    }
    // What each is short of its part, and what is left divided by that.
    let limit = u128::from(request.limit);
    let short: Vec<u128> = (0..claims.len())
        .map(|index| {
            let part = (limit * demand(index)).div_ceil(all);
            part.saturating_sub(targets[index].into())
        })
        .collect();
    let all_short = short.iter().sum::<u128>().max(1);
    let mut rest = left;
    for &index in &order {
        let more = u128::from(left) * short[index] / all_short;
        let more = u32::try_from(more).unwrap_or(u32::MAX).min(rest);
        (targets[index], rest) = (targets[index] + more, rest - more);
    }
    // What rounding left goes to those who want most.
    order.sort_by_key(|&index| std::cmp::Reverse(short[index]));
    for &index in order.iter().filter(|&&index| short[index] > 0) {
        let more = rest.min(1);
        (targets[index], rest) = (targets[index] + more, rest - more);
    }
    // Who wants little leaves the rest for those who come next.
    for (target, claim) in targets.iter_mut().zip(claims) {
        let useful = claim.demand.saturating_add(claim.demand.div_ceil(2));
        let useful = u32::try_from(useful).unwrap_or(u32::MAX);
        let most = useful.max(request.limit / nodes.max(1)).max(claim.need).max(claim.floor);
        *target = (*target).min(most);
    }
    targets
}

#[cfg(test)]
mod tests;
