//! Things that are for all, of which each holder has a share that shrinks as others take theirs.
//!
//! A fixed share of a quarter is all of it for four accounts, and accounts can be had for nothing where
//! customers sign up themselves. So a holder may have `percent` of what it has and what is free together:
//! alone that is `percent` of all, and each that comes leaves the same part of the rest to the next (the
//! dynamic thresholds of Choudhury and Hahne, 1998): four that keep all they can get leave a third, and
//! twelve one in thirty.

use std::sync::Arc;

use super::{Count, InUse, InUseGuard};

/// The largest number of units for one holder while `free` units are unused.
///
/// At least one, so that whoever has none gets one while there is one.
#[must_use]
pub fn share_of(free: usize, percent: usize) -> usize {
    match 100_usize.checked_sub(percent) {
        None | Some(0) => usize::MAX,
        Some(rest) => free.saturating_mul(percent).div_ceil(rest).max(1),
    }
}

/// The size of a pool, and the share of each holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRule {
    /// Units in all.
    pub max: usize,
    /// Maximum part of its own and the free units together that a holder may have, in percent.
    pub percent: usize,
}

/// A pool of units shared by all.
#[derive(Debug, Default)]
pub struct UnitPool(Count);

/// The reason for a refusal by a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolRefusal {
    /// All units are in use.
    Pool,
    /// The holder has its share: this many units.
    Share(usize),
}

/// Units of a pool that are in use, until this is dropped.
#[derive(Debug)]
#[must_use = "what is dropped is not in use any more"]
pub struct PooledUnits {
    pool: Arc<UnitPool>,
    units: usize,
    _of_holder: Option<InUseGuard>,
}

impl Drop for PooledUnits {
    fn drop(&mut self) {
        self.pool.0.give_back(self.units);
    }
}

impl UnitPool {
    /// Takes `units` for a holder within its share, or without a share if there is no holder. `which` selects
    /// the holder's counter.
    ///
    /// # Errors
    /// Whether the pool or the share is exhausted. Nothing was taken then.
    pub fn enter(
        self: &Arc<Self>,
        holder: Option<&Arc<InUse>>,
        which: fn(&InUse) -> &Count,
        units: usize,
        rule: PoolRule,
    ) -> Result<PooledUnits, PoolRefusal> {
        let of_holder = match holder {
            Some(holder) => {
                // One that is larger than any share passes where its holder has nothing else.
                let share = self.share(rule).max(units);
                let entered = holder.enter_with(which, units, share);
                Some(entered.ok_or(PoolRefusal::Share(share))?)
            }
            None => None,
        };
        // Behind the holder's count, which is given back by itself if this fails.
        if !self.0.take(units, rule.max) {
            return Err(PoolRefusal::Pool);
        }
        Ok(PooledUnits { pool: Arc::clone(self), units, _of_holder: of_holder })
    }

    /// The most that one holder may have now.
    #[must_use]
    pub fn share(&self, rule: PoolRule) -> usize {
        share_of(rule.max.saturating_sub(self.0.taken()), rule.percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(max: usize, percent: usize) -> PoolRule {
        PoolRule { max, percent }
    }

    /// Takes units one by one until the pool refuses; returns their number.
    fn fill(pool: &Arc<UnitPool>, rule: PoolRule, kept: &mut Vec<PooledUnits>) -> usize {
        let holder = Arc::<InUse>::default();
        let one = || pool.enter(Some(&holder), |in_use| &in_use.upstream_calls, 1, rule);
        let before = kept.len();
        while let Ok(unit) = one() {
            kept.push(unit);
        }
        kept.len() - before
    }

    #[test]
    fn one_holder_alone_has_its_percent() {
        for (max, percent) in [(16, 25), (100, 25), (76, 25), (1000, 50), (7, 100), (1, 25), (3, 1)]
        {
            let (pool, mut kept) = (Arc::new(UnitPool::default()), Vec::new());
            let taken = fill(&pool, rule(max, percent), &mut kept);
            let exact = max * percent;
            assert!(
                taken * 100 >= exact && taken <= exact.div_ceil(100),
                "{taken}: {percent} % of {max}"
            );
        }
    }

    #[test]
    fn each_holder_leaves_a_part_to_the_next() {
        let (pool, mut kept) = (Arc::new(UnitPool::default()), Vec::new());
        let mut free = 1000_usize;
        for holder in 0..16 {
            let taken = fill(&pool, rule(1000, 25), &mut kept);
            assert!(taken > 0 && taken <= free.div_ceil(4), "holder {holder}: {taken} of {free}");
            free -= taken;
        }
        assert!(free > 5, "16 that keep all they can get leave {free}");
    }

    #[test]
    fn what_is_dropped_is_free_again_and_who_was_refused_took_nothing() {
        let (pool, mut kept) = (Arc::new(UnitPool::default()), Vec::new());
        assert_eq!(fill(&pool, rule(3, 100), &mut kept), 3);
        let holder = Arc::<InUse>::default();
        let one = || pool.enter(Some(&holder), |in_use| &in_use.upstream_calls, 1, rule(3, 100));
        assert_eq!(one().err(), Some(PoolRefusal::Pool));
        assert_eq!(holder.upstream_calls.taken(), 0);
        kept.clear();
        assert!(one().is_ok(), "all are free again");
        let large = pool.enter(Some(&holder), |in_use| &in_use.upstream_calls, 3, rule(3, 25));
        assert!(large.is_ok(), "one that is larger than the share fits while nobody has anything");
        assert_eq!(
            pool.enter(Some(&holder), |in_use| &in_use.upstream_calls, 1, rule(3, 25)).err(),
            Some(PoolRefusal::Share(1))
        );
    }
}
