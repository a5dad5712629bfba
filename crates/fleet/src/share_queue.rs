//! The queue of requests that wait for a share of a limit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use tollgate_ledger::{AccountId, CapDemand, KeyId};
use tollgate_money::money::Nanousd;

/// The longest wait for one sync: a sync takes milliseconds, and a request should not wait for a database
/// that does not answer.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Requests that wait for the next sync of limits.
#[derive(Debug)]
pub struct ShareQueue {
    hurry: Notify,
    /// Syncs that have begun.
    begun: AtomicU64,
    done: watch::Sender<CompletedSync>,
    /// The amounts that calls wait for, by key; and keys of which the node has a share.
    keys: Mutex<BTreeMap<(AccountId, KeyId), BTreeMap<u64, Nanousd>>>,
    calls: AtomicU64,
}

/// The latest completed sync.
#[derive(Clone, Copy, Debug, Default)]
struct CompletedSync {
    number: u64,
    is_answered: bool,
}

impl Default for ShareQueue {
    fn default() -> Self {
        Self {
            hurry: Notify::new(),
            begun: AtomicU64::new(0),
            done: watch::Sender::new(CompletedSync::default()),
            keys: Mutex::default(),
            calls: AtomicU64::new(0),
        }
    }
}

/// A call that waits until it is dropped.
pub(crate) struct WaitingCall<'a> {
    share_queue: &'a ShareQueue,
    key: (AccountId, KeyId),
    number: u64,
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        if let Some(calls) = self.share_queue.keys.lock().get_mut(&self.key) {
            calls.remove(&self.number);
        }
    }
}

impl ShareQueue {
    /// Waits for a sync that begins after this. Whether it was answered: not, if the database
    /// does not answer within a second.
    pub async fn wait(&self) -> bool {
        // The sync that is under way may have collected its requests before this one came.
        let next_sync = self.begun.load(Ordering::Acquire).saturating_add(1);
        let mut done = self.done.subscribe();
        self.hurry.notify_one();
        let done = done.wait_for(|done| done.number >= next_sync);
        match tokio::time::timeout(WAIT_MAX, done).await {
            Ok(Ok(done)) => done.is_answered,
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// Requests a sync soon.
    pub fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Registers a call of this key that waits until it may spend `amount`.
    pub(crate) fn call(&self, account: AccountId, key: KeyId, amount: Nanousd) -> WaitingCall<'_> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        self.keys.lock().entry((account, key)).or_default().insert(number, amount);
        WaitingCall { share_queue: self, key: (account, key), number }
    }

    /// API keys for the next sync: those with waiting calls, and those with a share on this node. Each has
    /// the smallest and the total amount that its calls wait for.
    pub(crate) fn waiting(&self) -> Vec<CapDemand> {
        let keys = self.keys.lock();
        let waiting = keys.iter().map(|(&(account, key), calls)| CapDemand {
            account,
            key,
            least: calls.values().min().copied().unwrap_or_default(),
            all: calls.values().fold(Nanousd::ZERO, |sum, amount| sum.saturating_add(*amount)),
        });
        waiting.collect()
    }

    /// The node has nothing of the key's limits any more.
    pub(crate) fn forget(&self, account: AccountId, key: KeyId) {
        let mut keys = self.keys.lock();
        if keys.get(&(account, key)).is_some_and(BTreeMap::is_empty) {
            keys.remove(&(account, key));
        }
    }

    /// Waits until a sync is requested before its interval.
    pub(crate) async fn hurried(&self) {
        self.hurry.notified().await;
    }

    /// Begins a sync. It may miss requests registered from now on.
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::AcqRel).saturating_add(1)
    }

    /// Completes the sync `number`, with or without an answer.
    pub(crate) fn end(&self, number: u64, is_answered: bool) {
        self.done.send_replace(CompletedSync { number, is_answered });
    }
}
