//! Records that are in the journal but not yet in sled, summed up as they come.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tollgate_journal::Waiters;
use tollgate_journal::committer::CommittedGroup;

use crate::journal::segment::Position;
use crate::projection::store::StoreError;
use crate::projection::window::Window;
use crate::records::error::{LedgerError, Violation};
use crate::records::record::JournaledRecord;
use tollgate_types::ids::Seq;

/// Length of a window: records gather this long before sled applies them. A row takes sled some 10
/// µs and each account has four per window, so with many active accounts a longer window costs less
/// per call.
pub(crate) const WINDOW: Duration = Duration::from_secs(5);
/// A part takes no further group when it has this many records: a fraction of a second to replay after
/// a crash.
pub(crate) const WINDOW_RECORDS_MAX: usize = 50_000;
/// Nor when it changes this many rows. Sled frees the pages that a batch replaces when the batch is over,
/// some 4 KiB for each row, and the memory of a batch of 40,000 rows does not come back. With fewer than
/// there are holds open at a time, each part would be full before its calls have ended, and each call
/// change rows of its own: with 400 open holds a call costs four times as much with 256 rows.
const BATCH_ROWS_MAX: usize = 1024;
/// Nor when it takes so much memory, in bytes: results of tasks have up to 4 MiB each.
const WINDOW_BYTES_MAX: u64 = 16 << 20;
/// Memory of waiting parts, in bytes, above which the committer waits too.
const BACKLOG_BYTES_MAX: u64 = 2 * WINDOW_BYTES_MAX;
/// Memory of one row or sum of a window in bytes, map overhead included.
const ROW_BYTES: u64 = 512;

/// Groups of the journal, one after the other, summed up for one batch of sled.
#[derive(Default)]
pub(crate) struct BacklogPart {
    pub(crate) window: Window,
    /// End of the journal after the last group.
    pub(crate) end: Position,
    pub(crate) records: usize,
    /// Size of the groups in the journal, in bytes.
    journal_bytes: u64,
}

impl BacklogPart {
    fn add(&mut self, group: CommittedGroup<'_, JournaledRecord>) -> Result<(), Violation> {
        self.records = self.records.saturating_add(group.entries.len());
        self.journal_bytes = self.journal_bytes.saturating_add(group.bytes);
        self.end = group.end;
        { group.entries }.try_for_each(|journaled| self.window.add(journaled))
    }

    /// About how much memory it takes, in bytes. What it keeps of records as they were is written twice
    /// as long at most, an entry with the hold that it ends, and in memory that grows by doubling.
    fn bytes(&self) -> u64 {
        let rows = self.window.rows().saturating_add(self.window.sums());
        let rows = u64::try_from(rows).unwrap_or(u64::MAX);
        rows.saturating_mul(ROW_BYTES).saturating_add(self.journal_bytes.saturating_mul(2))
    }

    fn is_full(&self) -> bool {
        self.window.rows() >= BATCH_ROWS_MAX
            || self.records >= WINDOW_RECORDS_MAX
            || self.bytes() >= WINDOW_BYTES_MAX
    }
}

/// Records that are in the journal but not yet in sled.
///
/// Each group is summed up when it comes, and its records are let go of: calls that begin and end within a
/// window leave an entry, and a share of their account's sums. What waits takes 32 MiB at most, and what is
/// being applied as much; with the calls of one account it is some 200 bytes a call.
pub(crate) struct Backlog {
    state: Mutex<BacklogState>,
    arrived: Condvar,
    room: Condvar,
    applied: AtomicU64,
}

#[derive(Default)]
struct BacklogState {
    /// Full parts, oldest first, and their memory in bytes.
    full: Vec<BacklogPart>,
    full_bytes: u64,
    /// The part after the full ones, once a group has arrived.
    open: Option<BacklogPart>,
    waiters: Waiters,
    stopping: bool,
    /// Position of the last received record.
    pushed: Seq,
    /// Reason why sled is unavailable; new records are then read from the journal.
    away: Option<String>,
    /// Keep new records although sled is unavailable: it is about to return.
    keeps: bool,
    /// True if a reader met an error.
    suspected: bool,
    /// Error that stopped the summing; new records are not kept then.
    failed: Option<StoreError>,
    /// Time at which the current window is to be applied.
    window_due: Option<Instant>,
}

/// Reason for the projector to wake up.
pub(crate) enum WakeReason {
    /// A reader waits.
    Demanded,
    /// The window is over.
    Window,
    /// Parts are full; what has begun since goes on.
    Full,
    /// There is time for other work.
    Woken,
    /// A query has failed.
    Suspected,
    /// The journal has stopped.
    Stop,
}

impl Backlog {
    /// A backlog behind what sled has already.
    pub(crate) fn new(applied: Seq) -> Self {
        Self {
            state: Mutex::new(BacklogState { pushed: applied, ..BacklogState::default() }),
            arrived: Condvar::new(),
            room: Condvar::new(),
            applied: AtomicU64::new(applied),
        }
    }

    /// Adds a group; waits while there is no room.
    pub(crate) fn push(&self, group: CommittedGroup<'_, JournaledRecord>) {
        let mut state = self.state.lock();
        // The committer waits rather than drops: the records are on disk, and sled would miss them.
        // Without sled there is nothing to wait for.
        while state.bytes() >= BACKLOG_BYTES_MAX && state.away.is_none() {
            self.room.wait(&mut state);
        }
        // Also where the group is let go: this says how far sled has to read the journal when it is
        // back.
        state.pushed = group.end.seq;
        if state.away.is_some() && (!state.keeps || state.bytes() >= BACKLOG_BYTES_MAX) {
            state.let_go();
            return;
        }
        let is_first = state.open.is_none();
        let is_over = state.add(group);
        // A wake-up costs a system call, so groups within a window make none.
        let is_awaited = is_first || is_over || !state.waiters.is_empty();
        drop(state);
        if is_awaited {
            self.arrived.notify_one();
        }
    }

    /// Nothing more will come.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.arrived.notify_one();
    }

    /// Waits until sled has the record at `seq`, and asks for it now.
    ///
    /// # Errors
    /// When sled has failed, or the ledger closed before that.
    pub(crate) async fn applied(&self, seq: Seq) -> Result<(), LedgerError> {
        let applied = {
            let mut state = self.state.lock();
            // Under the lock, under which `has_applied` takes the waiters: a waiter registers before that,
            // or sees the new value.
            if self.applied.load(Ordering::Acquire) >= seq {
                return Ok(());
            }
            if let Some(cause) = &state.away {
                return Err(LedgerError::Store(cause.clone()));
            }
            state.waiters.wait_for(seq)
        };
        self.arrived.notify_one();
        applied.await.map_err(|_| match &self.state.lock().away {
            Some(cause) => LedgerError::Store(cause.clone()),
            None => LedgerError::Stopped,
        })
    }

    /// A query has met an error: the projector looks at sled now.
    pub(crate) fn suspect(&self) {
        self.state.lock().suspected = true;
        self.arrived.notify_one();
    }

    /// Waits for the next window to be due; `None` if `wake` comes first.
    ///
    /// # Errors
    /// When a group came that cannot be summed up.
    pub(crate) fn next(
        &self,
        flush_due: Option<Instant>,
        wake: Option<Instant>,
    ) -> Result<(Vec<BacklogPart>, WakeReason), StoreError> {
        let mut state = self.state.lock();
        let due = loop {
            if let Some(error) = state.failed.take() {
                return Err(error);
            }
            if state.stopping {
                break WakeReason::Stop;
            }
            // Before any window: a batch for a store that has failed would be lost work.
            if std::mem::take(&mut state.suspected) {
                break WakeReason::Suspected;
            }
            if !state.is_empty() && !state.waiters.is_empty() {
                break WakeReason::Demanded;
            }
            if !state.full.is_empty() {
                break WakeReason::Full;
            }
            if state.open.is_some() {
                // From the first group on: later ones must not postpone it.
                state.window_due.get_or_insert_with(|| Instant::now() + WINDOW);
            }
            let deadline = flush_due.or(state.window_due);
            match deadline.into_iter().chain(wake).min() {
                None => self.arrived.wait(&mut state),
                Some(until) => {
                    if !self.arrived.wait_until(&mut state, until).timed_out() {
                        continue;
                    }
                    if deadline.is_none_or(|deadline| deadline > Instant::now()) {
                        return Ok((Vec::new(), WakeReason::Woken));
                    }
                    break WakeReason::Window;
                }
            }
        };
        let mut parts = std::mem::take(&mut state.full);
        state.full_bytes = 0;
        // A part that is still open grows further: calls that end in it cancel out.
        if !matches!(due, WakeReason::Full) {
            parts.extend(state.open.take());
            state.window_due = None;
        }
        drop(state);
        self.room.notify_one();
        Ok((parts, due))
    }

    /// Sled has everything up to `seq`.
    pub(crate) fn has_applied(&self, seq: Seq) {
        let mut state = self.state.lock();
        self.applied.store(seq, Ordering::Release);
        let woken = state.waiters.take_up_to(seq);
        drop(state);
        woken.wake();
    }

    /// Sled cannot go on: the journal does, and sled is brought up to it when it is back.
    pub(crate) fn leave(&self, cause: &str) {
        let mut state = self.state.lock();
        state.away = Some(cause.to_owned());
        state.suspected = false;
        state.let_go();
        state.waiters.dismiss();
        drop(state);
        self.room.notify_one();
    }

    /// The last record that sled has.
    pub(crate) fn applied_seq(&self) -> Seq {
        self.applied.load(Ordering::Acquire)
    }

    /// The last record that came, all of which are on disk.
    pub(crate) fn pushed(&self) -> Seq {
        self.state.lock().pushed
    }

    /// Keeps what comes from here on, and gives the last record that came before.
    pub(crate) fn keep(&self) -> Seq {
        let mut state = self.state.lock();
        state.let_go();
        state.keeps = true;
        state.pushed
    }

    /// Sled is back and has everything that came before [`Backlog::keep`], up to `applied`. False if
    /// too much has come since, and was let go.
    pub(crate) fn resume(&self, applied: Seq) -> bool {
        let mut state = self.state.lock();
        if !state.keeps {
            return false;
        }
        state.keeps = false;
        state.away = None;
        self.applied.store(applied, Ordering::Release);
        true
    }

    /// Waits for a while, and says whether the journal has stopped.
    pub(crate) fn stops_within(&self, wait: Duration) -> bool {
        let deadline = Instant::now() + wait;
        let mut state = self.state.lock();
        while !state.stopping {
            if self.arrived.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.stopping
    }

    /// Has those fail who still wait: nothing more will be applied.
    pub(crate) fn dismiss_waiters(&self) {
        self.state.lock().waiters.dismiss();
    }
}

impl BacklogState {
    /// Adds a group to the open part. True if there is something to do: the part is full, or the group
    /// cannot be summed up.
    fn add(&mut self, group: CommittedGroup<'_, JournaledRecord>) -> bool {
        if self.failed.is_some() {
            return true;
        }
        let part = self.open.get_or_insert_default();
        if let Err(violation) = part.add(group) {
            self.let_go();
            self.failed = Some(StoreError::new(violation.to_string()));
            return true;
        }
        if !part.is_full() {
            return false;
        }
        self.full_bytes = self.full_bytes.saturating_add(part.bytes());
        self.full.extend(self.open.take());
        true
    }

    fn is_empty(&self) -> bool {
        self.full.is_empty() && self.open.is_none()
    }

    /// About how much memory all parts take, in bytes.
    fn bytes(&self) -> u64 {
        self.full_bytes.saturating_add(self.open.as_ref().map_or(0, BacklogPart::bytes))
    }

    /// Discards the collected records, which are in the journal.
    fn let_go(&mut self) {
        self.full = Vec::new();
        self.full_bytes = 0;
        self.open = None;
        self.failed = None;
        self.window_due = None;
        self.keeps = false;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::records::record::Record;
    use crate::records::reservation::{OpenHold, Reservation};
    use tollgate_money::money::Nanousd;
    use tollgate_money::price::{Usage, UsageSource};
    use tollgate_types::clock::UnixMs;
    use tollgate_types::ids::{AccountId, HoldId, KeyId, RequestId};

    const AT: UnixMs = UnixMs(1_700_000_000_000);

    fn reservation() -> Arc<Reservation> {
        Arc::new(Reservation {
            account: AccountId::from_number(1),
            key: KeyId::from_number(2),
            model: "model".into(),
            price: None,
            request: RequestId::from_number(3),
            amount: Nanousd::new(5),
            floor: Nanousd::ZERO,
            at: AT,
        })
    }

    fn reserved(seq: Seq) -> JournaledRecord {
        JournaledRecord { seq, record: Record::Reserved(reservation()), hold: None }
    }

    /// The end of the hold that the record `hold` has made.
    fn posted(seq: Seq, hold: Seq) -> JournaledRecord {
        let record = Record::Posted {
            account: AccountId::from_number(1),
            hold: HoldId::from_number(hold),
            charged: Nanousd::new(3),
            written_off: Nanousd::ZERO,
            usage: Usage::default(),
            source: UsageSource::Upstream,
            at: AT,
        };
        let hold = OpenHold { reservation: reservation(), amount: Nanousd::new(5) };
        JournaledRecord { seq, record, hold: Some(hold) }
    }

    fn push(backlog: &Backlog, mut entries: Vec<JournaledRecord>, bytes: u64) {
        let seq = entries.last().expect("a record").seq;
        let end = Position { seq, ..Position::default() };
        let entries = entries.drain(..);
        backlog.push(CommittedGroup { entries, end, bytes, took: Duration::ZERO });
    }

    /// Takes the remaining parts, in a test.
    fn rest(backlog: &Backlog) -> Vec<BacklogPart> {
        backlog.stop();
        backlog.next(None, None).expect("sound").0
    }

    #[test]
    fn calls_that_begin_and_end_within_a_window_leave_no_hold() {
        let backlog = Backlog::new(0);
        for seq in (1..=20_000).step_by(2) {
            push(&backlog, vec![reserved(seq)], 60);
            push(&backlog, vec![posted(seq + 1, seq)], 50);
        }
        let bytes = backlog.state.lock().bytes();
        assert!(bytes < 10_000 * 250, "{bytes} bytes for 10,000 calls");
        let parts = rest(&backlog);
        let [part] = parts.as_slice() else { panic!("{} parts", parts.len()) };
        assert_eq!((part.window.rows(), part.end.seq), (0, 20_000));
        let sums: Vec<_> = part.window.usage.values().map(|total| total.calls).collect();
        assert_eq!(sums, [10_000], "one sum for all of them");
    }

    #[test]
    fn a_part_is_full_at_the_end_of_a_group_and_the_next_one_goes_on_behind_it() {
        let backlog = Backlog::new(0);
        push(&backlog, (1..=1000).map(reserved).collect(), 1);
        assert!(backlog.state.lock().full.is_empty());
        push(&backlog, (1001..=1100).map(reserved).collect(), 1);
        push(&backlog, vec![posted(1101, 7)], 1);
        let (parts, due) = backlog.next(None, None).expect("sound");
        assert!(matches!(due, WakeReason::Full));
        let ends: Vec<_> = parts.iter().map(|part| (part.end.seq, part.window.rows())).collect();
        assert_eq!(ends, [(1100, 1100)]);
        // What ends a hold of a part before says so.
        let parts = rest(&backlog);
        let [part] = parts.as_slice() else { panic!("{} parts", parts.len()) };
        assert_eq!(part.window.holds.get(&HoldId::from_number(7)), Some(&None));
        assert_eq!(part.end.seq, 1101);
    }

    #[test]
    fn the_committer_waits_while_as_much_waits_as_may() {
        let backlog = Backlog::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Results of tasks have as much in one record.
                for seq in 1..=40 {
                    push(&backlog, vec![reserved(seq)], 4 << 20);
                }
                backlog.stop();
            });
            let mut seen = 0;
            while seen < 40 {
                // The other thread comes as far as it may.
                std::thread::sleep(Duration::from_millis(2));
                let (parts, _) = backlog.next(None, None).expect("sound");
                let bytes: u64 = parts.iter().map(BacklogPart::bytes).sum();
                assert!(bytes < BACKLOG_BYTES_MAX + (9 << 20), "{bytes} bytes at one time");
                seen = parts.last().map_or(seen, |part| part.end.seq);
            }
        });
    }

    #[test]
    fn what_cannot_be_summed_up_is_an_error_of_sled_and_nothing_behind_it_is_kept() {
        let backlog = Backlog::new(0);
        push(&backlog, vec![reserved(1)], 1);
        let unknown = JournaledRecord { hold: None, ..posted(2, 9) };
        push(&backlog, vec![unknown], 1);
        push(&backlog, vec![reserved(3)], 1);
        assert!(backlog.state.lock().is_empty());
        let error = backlog.next(None, None).err().expect("it breaks a rule");
        backlog.leave(&error.to_string());
        // Away, it is read of the journal; from where it is kept on it is summed up again.
        push(&backlog, vec![reserved(4)], 1);
        assert!(backlog.state.lock().is_empty());
        assert_eq!(backlog.keep(), 4);
        push(&backlog, vec![reserved(5)], 1);
        assert!(backlog.resume(4));
        let parts = rest(&backlog);
        let [part] = parts.as_slice() else { panic!("{} parts", parts.len()) };
        assert_eq!((part.window.rows(), part.end.seq), (1, 5));
    }
}
