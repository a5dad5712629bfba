//! The whole journal read while the ledger is open: to export it, and to check it.
//!
//! What is on disk does not change any more, so it is read beside the thread that appends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OwnedSemaphorePermit;

use crate::journal::records::Records;
use crate::memory::Ledger;
use crate::reading::compare;
use crate::reading::verify::{self, VerificationReport};
use crate::records::error::{LedgerError, OpenError};
use crate::records::record::Record;
use tollgate_types::ids::Seq;

/// Readings of the whole journal at one time: each keeps a segment (64 MiB) in memory and takes the
/// disk's and one core's time from the customers.
pub(crate) const SCANS_MAX: usize = 2;

/// The journal's records, up to the last one that was there when it was asked for. Iterating blocks.
pub struct Scan {
    records: Records,
    _place: OwnedSemaphorePermit,
}

impl Iterator for Scan {
    type Item = Result<(Seq, Record), OpenError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.records.next()
    }
}

/// Stops a running check once its caller is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Ledger {
    /// The records from `from` on.
    ///
    /// # Errors
    /// [`LedgerError::Busy`], [`LedgerError::Stopped`] and [`LedgerError::Journal`].
    pub async fn scan(&self, from: Seq) -> Result<Scan, LedgerError> {
        let (place, last) = self.begin_scan().await?;
        let dir = self.dir.clone();
        let open = move || Records::open(&dir, from, Some(last));
        let records = off_the_runtime(open).await?;
        Ok(Scan { records, _place: place })
    }

    /// Checks the journal as [`Ledger::check_journal`] does, and that sled says the same. All of sled is
    /// read from the disk first, slowly, while it goes on; the two are compared at the record up to which
    /// sled knows of the journal when its last row was read. What is broken in sled is made anew.
    ///
    /// # Errors
    /// [`LedgerError::Busy`], [`LedgerError::Stopped`] and [`LedgerError::Journal`]; what can be read
    /// and is wrong is in the report.
    pub async fn verify(&self) -> Result<VerificationReport, LedgerError> {
        let place = Arc::clone(&self.scans).try_acquire_owned().map_err(|_| LedgerError::Busy)?;
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let abandoned = CancelOnDrop(Arc::clone(&is_abandoned));
        let (dir, projected) = (self.dir.clone(), Arc::clone(&self.projected));
        let (backlog, is_over) = (Arc::clone(&self.backlog), Arc::clone(&is_abandoned));
        let read_sled = move || {
            Ok(compare::read_sled(&dir, &projected, &backlog, &|| !is_over.load(Ordering::Relaxed)))
        };
        let sled = off_the_runtime(read_sled).await?;
        // Behind the record at which sled was read: sled has nothing that is not on disk in the journal.
        let last = self.journal.last_seq();
        self.journal.durable(last).await?;
        let dir = self.dir.clone();
        let check = move || {
            let _place = place;
            let goes_on = || !is_abandoned.load(Ordering::Relaxed);
            verify::check_with_sled(&dir, Some(last), sled, &goes_on)
        };
        let report = off_the_runtime(check).await;
        drop(abandoned);
        report
    }

    /// Checks the journal up to the last record that is there now: every checksum, the hash chain,
    /// and every rule of money. Nothing is compared with sled. It rebuilds the state beside the one
    /// in memory, and ends early when the future is dropped.
    ///
    /// # Errors
    /// [`LedgerError::Busy`], [`LedgerError::Stopped`] and [`LedgerError::Journal`]; what can be read
    /// and is wrong is in the report.
    pub async fn check_journal(&self) -> Result<VerificationReport, LedgerError> {
        let (place, last) = self.begin_scan().await?;
        let (dir, is_abandoned) = (self.dir.clone(), Arc::new(AtomicBool::new(false)));
        let abandoned = CancelOnDrop(Arc::clone(&is_abandoned));
        let check = move || {
            let _place = place;
            verify::check(&dir, Some(last), &|| !is_abandoned.load(Ordering::Relaxed))
        };
        let report = off_the_runtime(check).await;
        drop(abandoned);
        report
    }

    /// A place among those who read the whole journal, and the last record on disk.
    async fn begin_scan(&self) -> Result<(OwnedSemaphorePermit, Seq), LedgerError> {
        let place = Arc::clone(&self.scans).try_acquire_owned().map_err(|_| LedgerError::Busy)?;
        let last = self.journal.last_seq();
        self.journal.durable(last).await?;
        Ok((place, last))
    }
}

pub(crate) async fn off_the_runtime<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, LedgerError> {
    match tokio::task::spawn_blocking(read).await {
        Ok(read) => read.map_err(|error| LedgerError::Journal(error.to_string())),
        Err(error) => Err(LedgerError::Journal(error.to_string())),
    }
}
