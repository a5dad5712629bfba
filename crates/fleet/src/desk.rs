//! Where requests wait for a share of a limit, and the node for requests that wait.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use tollgate_ledger::{AccountId, CapDemand, KeyId};
use tollgate_money::money::Nanousd;

/// Nobody waits longer for one exchange: one takes milliseconds, and who waits for a database that
/// does not answer is better told so.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// What a node's exchanges about limits are wanted for.
#[derive(Debug)]
pub struct Desk {
    hurry: Notify,
    /// Exchanges that have begun.
    begun: AtomicU64,
    done: watch::Sender<Done>,
    /// What keys wait for that may not spend more with what the node has of their limits; and keys of
    /// which the node has some.
    keys: Mutex<BTreeMap<(AccountId, KeyId), BTreeMap<u64, Nanousd>>>,
    calls: AtomicU64,
}

/// The last exchange that is over.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    number: u64,
    is_answered: bool,
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            hurry: Notify::new(),
            begun: AtomicU64::new(0),
            done: watch::Sender::new(Done::default()),
            keys: Mutex::default(),
            calls: AtomicU64::new(0),
        }
    }
}

/// A call that waits until it is dropped.
pub(crate) struct WaitingCall<'a> {
    desk: &'a Desk,
    key: (AccountId, KeyId),
    number: u64,
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        if let Some(calls) = self.desk.keys.lock().get_mut(&self.key) {
            calls.remove(&self.number);
        }
    }
}

impl Desk {
    /// Waits for an exchange that begins after this. Whether it was answered: not, if the database
    /// does not answer within a second.
    pub async fn wait(&self) -> bool {
        let wanted = self.begun.load(Ordering::Acquire).saturating_add(1);
        let mut done = self.done.subscribe();
        self.hurry.notify_one();
        let done = done.wait_for(|done| done.number >= wanted);
        match tokio::time::timeout(WAIT_MAX, done).await {
            Ok(Ok(done)) => done.is_answered,
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// Asks for an exchange soon.
    pub fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// A call of this key waits to be let spend so much.
    pub(crate) fn call(&self, account: AccountId, key: KeyId, amount: Nanousd) -> WaitingCall<'_> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        self.keys.lock().entry((account, key)).or_default().insert(number, amount);
        WaitingCall { desk: self, key: (account, key), number }
    }

    /// All keys that the exchanges are about, and what their calls wait for.
    pub(crate) fn waiting(&self) -> Vec<CapDemand> {
        let keys = self.keys.lock();
        let waiting = keys.iter().map(|(&(account, key), calls)| CapDemand {
            account,
            key,
            least: calls.values().min().copied().unwrap_or_default(),
            all: calls.values().fold(Nanousd::ZERO, |sum, amount| {
                sum.checked_add(*amount).unwrap_or(Nanousd::MAX)
            }),
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

    /// An exchange is wanted before the next beat.
    pub(crate) async fn hurried(&self) {
        self.hurry.notified().await;
    }

    /// An exchange begins. What is asked for from here on, it may not see.
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::AcqRel).saturating_add(1)
    }

    /// Says that the exchange `number` is over, and whether it was answered.
    pub(crate) fn end(&self, number: u64, is_answered: bool) {
        self.done.send_replace(Done { number, is_answered });
    }
}
