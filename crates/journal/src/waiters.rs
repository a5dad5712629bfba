//! Tasks that wait until a record has been dealt with, in order of its number.

use tokio::sync::oneshot;

use crate::Seq;

/// Tasks that wait, each for a record of its own. To be kept under the lock under which the record that
/// is reached moves on, so that nobody begins to wait for what has come already.
#[derive(Debug, Default)]
pub struct Waiters(Vec<(Seq, oneshot::Sender<()>)>);

impl Waiters {
    /// Waits for `seq`. What this gives fails when [`Waiters::dismiss`] is called before that.
    pub fn wait_for(&mut self, seq: Seq) -> oneshot::Receiver<()> {
        let (sender, reached) = oneshot::channel();
        self.0.push((seq, sender));
        reached
    }

    /// Takes those who wait for `seq` or a record before it. [`DueWaiters::wake`] is for after the lock was
    /// given back.
    pub fn take_up_to(&mut self, seq: Seq) -> DueWaiters {
        let (woken, waiting) =
            std::mem::take(&mut self.0).into_iter().partition(|(at, _)| *at <= seq);
        self.0 = waiting;
        DueWaiters(woken)
    }

    /// Has all fail who wait: nothing more will come.
    pub fn dismiss(&mut self) {
        self.0.clear();
    }

    /// True if there are no waiters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Waiting tasks whose record has been reached.
#[derive(Debug)]
#[must_use = "they wait to be woken"]
pub struct DueWaiters(Vec<(Seq, oneshot::Sender<()>)>);

impl DueWaiters {
    /// Wakes all of these tasks.
    pub fn wake(self) {
        for (_, waiter) in self.0 {
            // A waiter that went away needs no answer.
            waiter.send(()).ok();
        }
    }
}
