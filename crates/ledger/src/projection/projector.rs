//! The thread that brings the sled ledger up to the journal, every few seconds.

mod mend;
mod pack;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use self::mend::Mender;
use self::pack::Packer;
use crate::journal::head::HeadFile;
use crate::projection::backlog::{Backlog, BacklogPart, WINDOW, WINDOW_RECORDS_MAX, WakeReason};
use crate::projection::projected::ProjectionSlot;
use crate::projection::store::{Store, StoreError};
pub use tollgate_options::ledger::Pruning;

/// Thread that applies windows to sled.
pub(crate) struct Projector {
    pub backlog: Arc<Backlog>,
    pub projected: Arc<ProjectionSlot>,
    /// Data directory of the ledger.
    pub dir: PathBuf,
    /// The checkpoints with which another sled begins.
    pub head: Arc<HeadFile>,
    /// Retention of lines and hours.
    pub pruning: Pruning,
}

impl Projector {
    /// Runs until the journal stops. Whenever sled fails it is opened again or made anew meanwhile;
    /// `absence` is why there is none to begin with.
    pub(crate) fn run(self, absence: Option<String>) {
        let mut mender = Mender::new(&self);
        let mut failure = absence.map(StoreError::full);
        loop {
            let cause = match failure.take() {
                Some(cause) => cause,
                // Sled panics on some kinds of corruption that it does not expect.
                None => match catch_unwind(AssertUnwindSafe(|| self.project())) {
                    Ok(Ok(())) => break,
                    Ok(Err(error)) => error,
                    Err(_) => StoreError::new("sled panicked"),
                },
            };
            if !mender.mend(&cause) {
                break;
            }
        }
        self.backlog.dismiss_waiters();
    }

    fn project(&self) -> Result<(), StoreError> {
        let mut flush_due: Option<Instant> = None;
        let mut unflushed = 0_usize;
        let mut packer = Packer::new(self);
        loop {
            let (parts, due) = self.backlog.next(flush_due, packer.wake())?;
            if let Some(last) = parts.last().map(|part| part.end.seq) {
                for BacklogPart { window, end, records, .. } in parts {
                    unflushed = unflushed.saturating_add(records);
                    self.projected.write(|store| store.apply(window, end))?;
                }
                // Readers need what is applied, not what is flushed: a crash replays it from the
                // journal.
                self.backlog.has_applied(last);
                flush_due = flush_due.or_else(|| Some(Instant::now() + WINDOW));
            }
            let is_overdue = flush_due.is_some_and(|due| due <= Instant::now());
            let is_due = match due {
                WakeReason::Full => unflushed >= WINDOW_RECORDS_MAX,
                // Rows that are copied go through the cache too.
                WakeReason::Window | WakeReason::Demanded | WakeReason::Woken
                    if packer.is_packing() =>
                {
                    self.projected.write(|store| Ok(store.is_worn()))?
                }
                WakeReason::Demanded | WakeReason::Woken => false,
                WakeReason::Window | WakeReason::Suspected | WakeReason::Stop => true,
            };
            if flush_due.is_some() && (is_overdue || is_due) {
                self.projected.write(Store::flush)?;
                (flush_due, unflushed) = (None, 0);
            }
            match due {
                WakeReason::Stop => return Ok(()),
                WakeReason::Suspected => {
                    if let Some(error) = self.projected.suspected() {
                        return Err(error);
                    }
                }
                WakeReason::Demanded
                | WakeReason::Window
                | WakeReason::Full
                | WakeReason::Woken
                    if flush_due.is_none() =>
                {
                    let applied = self.backlog.applied_seq();
                    // Only right after a flush: closing flushes as well, but only logs a failure.
                    self.projected.renew(&self.dir.join("sled"), applied)?;
                }
                WakeReason::Demanded
                | WakeReason::Window
                | WakeReason::Full
                | WakeReason::Woken => {}
            }
            packer.turn()?;
        }
    }
}
