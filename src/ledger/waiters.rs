//! Who waits until a place of the journal is reached: until it is on disk, or in sled.

use tokio::sync::oneshot;

use crate::ledger::Seq;

/// Those who wait, each for a place of their own. Kept under the lock under which the place that is
/// reached moves on, so that nobody begins to wait for what has come already.
#[derive(Default)]
pub(super) struct Waiters(Vec<(Seq, oneshot::Sender<()>)>);

impl Waiters {
    /// Waits for `seq`. What this gives fails when [`Waiters::dismiss`] is called before that.
    pub(super) fn wait_for(&mut self, seq: Seq) -> oneshot::Receiver<()> {
        let (sender, reached) = oneshot::channel();
        self.0.push((seq, sender));
        reached
    }

    /// Takes those who wait for `seq` or a place before it: they are told once the lock is given back.
    pub(super) fn take_up_to(&mut self, seq: Seq) -> Woken {
        let (woken, waiting) =
            std::mem::take(&mut self.0).into_iter().partition(|(at, _)| *at <= seq);
        self.0 = waiting;
        Woken(woken)
    }

    /// Lets all know that nothing more will come.
    pub(super) fn dismiss(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Those whose place is reached.
#[must_use = "they wait to be told"]
pub(super) struct Woken(Vec<(Seq, oneshot::Sender<()>)>);

impl Woken {
    pub(super) fn tell(self) {
        for (_, waiter) in self.0 {
            // A waiter that went away needs no answer.
            waiter.send(()).ok();
        }
    }
}
