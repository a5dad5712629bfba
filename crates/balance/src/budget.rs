//! Retry budget: bounds retries to a share of requests, so that a failing upstream is not hit by a retry
//! storm.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_config::snapshot::RetryRules;

/// Cost of one retry, in the unit of the budget.
const RETRY: i64 = 1000;
/// Period whose income caps the budget: a quiet hour must not allow a storm.
const SAVED_FOR: Duration = Duration::from_secs(10);

/// The budget of one gateway, in thousandths of a retry. Requests bring some, retries take one.
#[derive(Debug)]
pub struct RetryBudget {
    began: Instant,
    left: AtomicI64,
    /// Time up to which the per-second income is credited, in milliseconds since `began`.
    filled_until_ms: AtomicU64,
}

impl RetryBudget {
    /// Create a budget with enough for the first seconds.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { began: now, left: AtomicI64::new(10 * RETRY), filled_until_ms: AtomicU64::new(0) }
    }

    /// Credit the share of one request.
    pub fn deposit(&self, rules: &RetryRules) {
        let share = i64::from(rules.budget_percent) * RETRY / 100;
        let most = Self::most(rules) + share * i64::try_from(SAVED_FOR.as_secs()).unwrap_or(0);
        // Concurrent requests may pass the cap by their shares: harmless, and cheaper than a loop.
        if self.left.load(Ordering::Relaxed) < most {
            self.left.fetch_add(share, Ordering::Relaxed);
        }
    }

    /// Debit one retry. Returns false if the budget lacks it.
    pub fn withdraw(&self, now: Instant, rules: &RetryRules) -> bool {
        self.fill(now, rules);
        let take = |left: i64| (left >= RETRY).then_some(left - RETRY);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Credit the per-second income since the last call.
    fn fill(&self, now: Instant, rules: &RetryRules) {
        let now_ms = now.saturating_duration_since(self.began).as_millis();
        let now_ms = u64::try_from(now_ms).unwrap_or(u64::MAX);
        // Swapped, so that each millisecond is credited to one caller only.
        let before = self.filled_until_ms.swap(now_ms, Ordering::Relaxed);
        let passed_ms = i64::try_from(now_ms.saturating_sub(before)).unwrap_or(i64::MAX);
        let most = Self::most(rules);
        let left = self.left.load(Ordering::Relaxed);
        if left < most {
            let earned = passed_ms.saturating_mul(i64::from(rules.per_second_min));
            self.left.fetch_add(earned.min(most - left), Ordering::Relaxed);
        }
    }

    fn most(rules: &RetryRules) -> i64 {
        let seconds = i64::try_from(SAVED_FOR.as_secs()).unwrap_or(0);
        i64::from(rules.per_second_min) * seconds * RETRY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: RetryRules = RetryRules {
        tries_max: 4,
        budget_percent: 20,
        per_second_min: 2,
        deadline: Duration::from_secs(60),
    };

    fn take_all(budget: &RetryBudget, now: Instant) -> usize {
        (0..1000).take_while(|_| budget.withdraw(now, &RULES)).count()
    }

    #[test]
    fn retries_are_a_share_of_requests_and_a_few_a_second() {
        let now = Instant::now();
        let budget = RetryBudget::new(now);
        assert_eq!(take_all(&budget, now), 10, "to begin with");
        (0..50).for_each(|_| budget.deposit(&RULES));
        assert_eq!(take_all(&budget, now), 10, "a fifth of the requests");
        assert_eq!(take_all(&budget, now + Duration::from_secs(3)), 6, "two a second");
        let later = now + Duration::from_secs(3600);
        assert_eq!(take_all(&budget, later), 20, "an hour saves up no more than ten seconds");
    }
}
