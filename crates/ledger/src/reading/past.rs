//! Lines of statements that sled does not have any more, read from the journal's segments, wherever
//! these are now.
//!
//! A seal's list of accounts says which segments have to be read: some 0.3 s for each, and one reader at
//! a time, so that nobody who looks far back takes the processor from the calls.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::files::seal::{self, Seal};
use crate::journal::segment;
use crate::journal::stream::Frames;
use crate::memory::Ledger;
use crate::projection::store::{CallName, Store, StoreError};
use crate::projection::window::is_entry;
use crate::reading::report::track;
use crate::records::error::{LedgerError, OpenError};
use crate::records::record::JournaledRecord;
use crate::records::reservation::OpenHold;
use tollgate_money::money::Nanousd;
use tollgate_types::ids::{AccountId, HoldId, Seq};

/// Number of segments searched for a call by its request id, which contains its time.
const SEGMENTS_OF_REQUEST: usize = 4;
/// Maximum amount by which a clock may go back between a request and the end of its call.
const SLACK_MS: u64 = 5_000;

/// The segments up to some record.
pub(crate) struct PastSegments {
    dir: PathBuf,
    segments: Vec<Seq>,
    /// First position that sled has lines for.
    to: Seq,
}

impl PastSegments {
    fn open(dir: &Path, to: Seq) -> Result<Self, OpenError> {
        let dir = dir.join("journal");
        let mut segments = segment::list(&dir)?;
        segments.retain(|first_seq| *first_seq < to);
        Ok(Self { dir, segments, to })
    }

    /// At most `limit` lines of an account before `before`, newest first.
    fn entries(
        &self,
        account: AccountId,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<JournaledRecord>, OpenError> {
        let mut found = Vec::new();
        for first_seq in self.segments.iter().rev().filter(|first_seq| **first_seq < before) {
            let lines = self.lines(*first_seq, account)?.into_iter().rev();
            let lines = lines.filter(|line| line.seq < before);
            found.extend(lines.take(limit.saturating_sub(found.len())));
            if found.len() >= limit {
                break;
            }
        }
        Ok(found)
    }

    /// The end of a call of an account.
    fn end_of_call(
        &self,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<JournaledRecord>, OpenError> {
        let (begin, most) = match name {
            CallName::Hold(id, _) if id.number() >= self.to => return Ok(None),
            CallName::Hold(id, _) => (self.index_of(id.number()), usize::MAX),
            CallName::Request(_, from) => {
                let mut begin = 0;
                for first_seq in &self.segments {
                    let ended = Seal::find(&self.dir, *first_seq)?.is_some_and(|seal| {
                        seal.summary.last_at.0.saturating_add(SLACK_MS) < from.0
                    });
                    if !ended {
                        break;
                    }
                    begin += 1;
                }
                (begin, SEGMENTS_OF_REQUEST)
            }
        };
        for first_seq in self.segments.iter().skip(begin).take(most) {
            let lines = self.lines(*first_seq, account)?;
            if let Some(end) = lines.into_iter().find(|line| name.is_ended_by(line)) {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    /// The line at this place.
    fn entry(&self, account: AccountId, seq: Seq) -> Result<Option<JournaledRecord>, OpenError> {
        let Some(first_seq) = self.segments.get(self.index_of(seq)) else { return Ok(None) };
        Ok(self.lines(*first_seq, account)?.into_iter().find(|line| line.seq == seq))
    }

    /// The segment that has the record at `seq`.
    fn index_of(&self, seq: Seq) -> usize {
        self.segments.partition_point(|first_seq| *first_seq <= seq).saturating_sub(1)
    }

    /// Lines of an account in a segment, oldest first, without those in sled.
    fn lines(&self, first_seq: Seq, account: AccountId) -> Result<Vec<JournaledRecord>, OpenError> {
        if !self.may_have(first_seq, account)? {
            return Ok(Vec::new());
        }
        let (mut holds, mut lines) = (HashMap::new(), Vec::new());
        let oldest = self.read(first_seq, account, &mut holds, &mut lines)?;
        if oldest < first_seq {
            // A call that began in an earlier segment: all is read again from there.
            holds.clear();
            for at in self.index_of(oldest)..=self.index_of(first_seq) {
                let Some(at) = self.segments.get(at) else { continue };
                lines.clear();
                if self.may_have(*at, account)? {
                    self.read(*at, account, &mut holds, &mut lines)?;
                }
            }
        }
        Ok(lines)
    }

    fn may_have(&self, first_seq: Seq, account: AccountId) -> Result<bool, OpenError> {
        let seal = Seal::find(&self.dir, first_seq)?;
        Ok(seal.is_none_or(|seal| seal::may_have(&seal, &self.dir, account)))
    }

    /// Reads a segment with these holds open at its beginning, and gives the oldest hold that it names.
    fn read(
        &self,
        first_seq: Seq,
        account: AccountId,
        holds: &mut HashMap<HoldId, OpenHold>,
        lines: &mut Vec<JournaledRecord>,
    ) -> Result<Seq, OpenError> {
        let mut oldest = first_seq;
        let mut frames = Frames::open(&self.dir, first_seq)?;
        // An unsealed segment may grow meanwhile; what is wanted of it is whole.
        while frames.seq.saturating_add(1) < self.to
            && let Some(frame) = frames.next_frame()?
        {
            for (record, seq) in frame.records.into_iter().zip(frame.first_seq..) {
                if record.account() != account || seq >= self.to {
                    continue;
                }
                let named = record.open_hold();
                oldest = named.map_or(oldest, |hold| oldest.min(hold.number()));
                let hold = named.and_then(|id| holds.get(&id).cloned());
                track(holds, seq, &record);
                if is_entry(&record) {
                    lines.push(JournaledRecord { seq, record, hold });
                }
            }
        }
        Ok(oldest)
    }
}

impl Ledger {
    /// At most `limit` statement lines of an account before `before`, newest first: from sled, then from the
    /// journal.
    pub(crate) async fn lines(
        &self,
        account: AccountId,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<JournaledRecord>, LedgerError> {
        let ask = move |store: &Store| {
            Ok((store.entries(account, before, limit)?, store.entries_from()?))
        };
        let (mut found, from) = self.query(ask).await?;
        found.retain(|line| line.seq >= from);
        let missing = limit.saturating_sub(found.len());
        if missing > 0 {
            let past = move |past: &PastSegments| past.entries(account, before.min(from), missing);
            found.extend(self.past(from, past).await?.unwrap_or_default());
        }
        Ok(found)
    }

    /// The line with which a call of an account ended, if it is found: see
    /// [`Store::end_of_call`](crate::projection::store::Store).
    pub(crate) async fn end_of_call(
        &self,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<JournaledRecord>, LedgerError> {
        let ask =
            move |store: &Store| Ok((store.end_of_call(account, name)?, store.entries_from()?));
        match self.query(ask).await? {
            (Some(found), _) => Ok(Some(found)),
            (None, from) => {
                let found = self.past(from, move |past| past.end_of_call(account, name)).await?;
                Ok(found.flatten())
            }
        }
    }

    /// Charge of a settled hold; `None` if the account has no such hold.
    pub(crate) async fn charged_here(
        &self,
        account: AccountId,
        hold: HoldId,
    ) -> Result<Option<Nanousd>, LedgerError> {
        let ask = move |store: &Store| Ok((store.charged(account, hold)?, store.entries_from()?));
        let (charged, from) = self.query(ask).await?;
        if charged.is_some() {
            return Ok(charged);
        }
        let name = CallName::Hold(hold, None);
        let end = self.past(from, move |past| past.end_of_call(account, name)).await?;
        Ok(end.flatten().and_then(|end| end.record.charged()))
    }

    /// The lines of an account at these places.
    pub(crate) async fn lines_at(
        &self,
        account: AccountId,
        places: Vec<Seq>,
    ) -> Result<Vec<JournaledRecord>, LedgerError> {
        let ask = move |store: &Store| {
            let found = places.iter().map(|seq| Ok((*seq, store.entry(account, *seq)?)));
            Ok((found.collect::<Result<Vec<_>, StoreError>>()?, store.entries_from()?))
        };
        let (lines, from) = self.query(ask).await?;
        let mut found = Vec::new();
        for (seq, line) in lines {
            let line = match line {
                Some(line) => Some(line),
                None => self.past(from, move |past| past.entry(account, seq)).await?.flatten(),
            };
            found.extend(line);
        }
        Ok(found)
    }

    /// Asks the journal for what stands before `to`, one after the other. `None` if nothing does.
    async fn past<T: Send + 'static>(
        &self,
        to: Seq,
        ask: impl FnOnce(&PastSegments) -> Result<T, OpenError> + Send + 'static,
    ) -> Result<Option<T>, LedgerError> {
        if to <= 1 {
            return Ok(None);
        }
        let turn = self.past.acquire().await.map_err(|_| LedgerError::Stopped)?;
        let dir = self.dir.clone();
        let read = move || PastSegments::open(&dir, to).and_then(|past| ask(&past));
        let read = crate::reading::scan::off_the_runtime(read).await.map(Some);
        drop(turn);
        read
    }
}
