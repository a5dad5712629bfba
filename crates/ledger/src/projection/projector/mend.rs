//! Repair of a sled ledger that failed while the gateway serves: reopened at its last position, or
//! rebuilt from the journal.

use crate::projection::load;
use std::time::{Duration, Instant};

use super::Projector;
use crate::projection::load::ReplayedState;
use crate::projection::store::StoreError;
use crate::records::error::OpenError;

/// The wait before the first try.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait between two tries.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// A sled that fails again within this time was not mended.
const PROBATION: Duration = Duration::from_secs(600);
/// Sled is made anew at most so often: what fails again that soon has another cause.
const REBUILD_INTERVAL: Duration = Duration::from_secs(3600);
/// Free disk space below which sled is not opened: it would only fail again, and the space is kept for the
/// journal.
const FREE_BYTES_MIN: u64 = 8 << 20;
/// With fewer records to come the last part is read while what comes is kept.
const RECORDS_CLOSE: u64 = 20_000;
/// Interval of the log line that sled is still unavailable.
const REMINDER: Duration = Duration::from_secs(60);

/// Repair state across failures.
pub(super) struct Mender<'a> {
    projector: &'a Projector,
    mended_at: Option<Instant>,
    rebuilt_at: Option<Instant>,
    /// Failures in a row that were not for want of room.
    strikes: u32,
}

impl<'a> Mender<'a> {
    pub(super) fn new(projector: &'a Projector) -> Self {
        Self { projector, mended_at: None, rebuilt_at: None, strikes: 0 }
    }

    /// Tries until sled is back, and then gives true; false once the journal has stopped.
    pub(super) fn mend(&mut self, cause: &StoreError) -> bool {
        let Projector { backlog, projected, .. } = self.projector;
        log::error!(
            "the sled ledger failed: {cause}. Calls are served and paid as before; statements, usage, \
             tasks that ended and the audit cannot be read until it is open again, which is tried now"
        );
        if self.mended_at.is_none_or(|at| at.elapsed() > PROBATION) {
            self.strikes = 0;
        }
        self.count(cause.is_full);
        let (text, begun) = (cause.to_string(), Instant::now());
        backlog.leave(&text);
        projected.take_away(&text);
        let (mut wait, mut logged_at) = (FIRST_WAIT, Instant::now());
        while !backlog.stops_within(wait) {
            wait = wait.saturating_mul(2).min(WAIT_MAX);
            let error = match self.open() {
                Ok(state) => {
                    log::warn!(
                        "the sled ledger is open again after {} s",
                        begun.elapsed().as_secs()
                    );
                    projected.put_back(state.store);
                    self.mended_at = Some(Instant::now());
                    return true;
                }
                Err(error) => error,
            };
            self.count(matches!(error, OpenError::NoRoom(_)));
            if logged_at.elapsed() >= REMINDER || wait <= FIRST_WAIT * 4 {
                logged_at = Instant::now();
                log::error!("the sled ledger cannot be opened yet, which is tried again: {error}");
            }
        }
        false
    }

    fn count(&mut self, is_full: bool) {
        if !is_full {
            self.strikes = self.strikes.saturating_add(1);
        }
    }

    /// Opens it, or makes it anew where opening did not help, and brings it up to the journal.
    fn open(&mut self) -> Result<ReplayedState, OpenError> {
        let Projector { backlog, dir, head, .. } = self.projector;
        load::check_room(dir, FREE_BYTES_MIN)?;
        let may_rebuild = self.rebuilt_at.is_none_or(|at| at.elapsed() > REBUILD_INTERVAL);
        // Opening alone helps after a full disk or a panic; a second failure in a row means the file.
        if self.strikes > 1 && may_rebuild {
            self.strikes = 0;
            self.rebuilt_at = Some(Instant::now());
            load::set_aside(dir, "it failed again")?;
        }
        let mut state = load::load(dir, &head.now().notes.checkpoints, Some(backlog.pushed()))?;
        loop {
            let pushed = backlog.pushed();
            let is_close = pushed.saturating_sub(state.end.seq) < RECORDS_CLOSE;
            // Kept from the same moment on as the goal is read: no record falls between replay and
            // queue.
            let to = if is_close { backlog.keep() } else { pushed };
            state.replay(dir, Some(to))?;
            if is_close && backlog.resume(state.end.seq) {
                load::discard_broken(dir);
                return Ok(state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::projection::store::StoreError;
    use crate::{Ledger, LedgerError, Options, verify};
    use tollgate_money::money::Nanousd;
    use tollgate_types::ids::AccountId;

    async fn grants(ledger: &Ledger, account: AccountId, begin: u32) {
        for number in begin..begin + 20 {
            let id = number.to_string();
            ledger.grant(account, &id, Nanousd::new(1)).await.expect("a grant");
        }
    }

    /// Grants go on meanwhile.
    async fn entries_again(ledger: &Ledger, account: AccountId, expected: u32) {
        let begun = Instant::now();
        loop {
            match ledger.entries(account, None, 1_000).await {
                Ok(entries) if entries.len() == expected as usize => return,
                Ok(entries) => panic!("{} of {expected} entries", entries.len()),
                Err(LedgerError::Store(_)) => {}
                Err(error) => panic!("{error}"),
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "sled does not come back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn fails(ledger: &Arc<Ledger>) {
        let failed = ledger.ask(|_| Err::<(), _>(StoreError::new("injected"))).await;
        assert!(matches!(failed, Err(LedgerError::Store(_))), "{failed:?}");
    }

    async fn mended(ledger: &Ledger, times: u64) {
        let begun = Instant::now();
        while ledger.projection_state().mended < times {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", ledger.projection_state());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(ledger.projection_state().away, None);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_sled_that_fails_is_opened_again_while_the_ledger_is_used() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ledger, _) = Ledger::open(Options::new(dir.path())).expect("opens");
        let account = ledger.create_account("a").await.expect("an account").id;
        grants(&ledger, account, 0).await;
        entries_again(&ledger, account, 20).await;
        fails(&ledger).await;
        grants(&ledger, account, 20).await;
        mended(&ledger, 1).await;
        grants(&ledger, account, 40).await;
        entries_again(&ledger, account, 60).await;
        ledger.close();
        drop(ledger);
        let report = verify(dir.path()).expect("reads");
        assert_eq!(report.violations, Vec::<String>::new());
        assert_eq!(report.sled_hash.as_ref(), Some(&report.state_hash));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_sled_that_does_not_open_again_is_made_anew_while_the_ledger_is_used() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ledger, _) = Ledger::open(Options::new(dir.path())).expect("opens");
        let account = ledger.create_account("a").await.expect("an account").id;
        grants(&ledger, account, 0).await;
        entries_again(&ledger, account, 20).await;
        for entry in fs::read_dir(dir.path().join("sled")).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_file() {
                fs::write(path, vec![0x5a; 100_000]).expect("written");
            }
        }
        fails(&ledger).await;
        grants(&ledger, account, 20).await;
        mended(&ledger, 1).await;
        entries_again(&ledger, account, 40).await;
        let left: Vec<_> = fs::read_dir(dir.path())
            .expect("readable")
            .filter_map(|entry| entry.expect("readable").file_name().into_string().ok())
            .filter(|name| name.starts_with("sled."))
            .collect();
        assert_eq!(left, Vec::<String>::new(), "the old one is gone once the new one is whole");
        ledger.close();
        drop(ledger);
        let report = verify(dir.path()).expect("reads");
        assert_eq!(report.violations, Vec::<String>::new());
        assert_eq!(report.sled_hash.as_ref(), Some(&report.state_hash));
    }
}
