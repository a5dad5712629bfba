//! Rate limit on tasks that end without a charge: they cost the account nothing, but fill the ledger.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use tollgate_ledger::AccountId;

/// Window of the count.
const WINDOW: Duration = Duration::from_secs(60);
/// Number of accounts from which expired windows are removed.
const SWEPT_FROM: usize = 1024;

/// Unpaid tasks of each account in its current window.
#[derive(Debug, Default)]
pub(super) struct UnpaidTasks(Mutex<HashMap<AccountId, MinuteCount>>);

#[derive(Clone, Copy, Debug)]
struct MinuteCount {
    began: Instant,
    count: u32,
}

impl MinuteCount {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) >= WINDOW
    }
}

impl UnpaidTasks {
    /// Count one unpaid task.
    pub(super) fn note(&self, account: AccountId, now: Instant) {
        let mut minutes = self.0.lock();
        if minutes.len() >= SWEPT_FROM {
            minutes.retain(|_, minute| !minute.is_over(now));
        }
        let new = MinuteCount { began: now, count: 0 };
        let minute = minutes.entry(account).or_insert(new);
        if minute.is_over(now) {
            *minute = new;
        }
        minute.count = minute.count.saturating_add(1);
    }

    /// Time until an account may submit again that may have `most` unpaid tasks a window; `None` for
    /// now.
    pub(super) fn pause(&self, account: AccountId, most: u32, now: Instant) -> Option<Duration> {
        let minute = self.0.lock().get(&account).copied()?;
        let is_used_up = minute.count >= most && !minute.is_over(now);
        is_used_up.then(|| WINDOW.saturating_sub(now.saturating_duration_since(minute.began)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accounts_share_is_its_own_and_comes_back() {
        let (unpaid, began) = (UnpaidTasks::default(), Instant::now());
        let (one, other) = (AccountId::random(), AccountId::random());
        let pause = |account, after| unpaid.pause(account, 2, began + Duration::from_secs(after));
        assert_eq!(pause(one, 0), None);
        unpaid.note(one, began);
        assert_eq!(pause(one, 1), None);
        unpaid.note(one, began + Duration::from_secs(1));
        assert_eq!(pause(one, 10), Some(Duration::from_secs(50)));
        assert_eq!(pause(other, 10), None, "another's");
        assert_eq!(pause(one, 60), None, "the minute is over");
        unpaid.note(one, began + Duration::from_secs(61));
        assert_eq!(pause(one, 62), None, "a new one has begun");
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let (unpaid, began) = (UnpaidTasks::default(), Instant::now());
        for number in 0..5_000_u32 {
            unpaid.note(AccountId::random(), began + WINDOW * (number / 1_000));
        }
        assert!(unpaid.0.lock().len() <= 2 * SWEPT_FROM, "{}", unpaid.0.lock().len());
    }
}
