//! A node's access to the fleet's directory: the lock of its writers, and its progress.
//!
//! The directory is a log of what operators and customers wrote, the same for all nodes. A node
//! decides on what it has followed so far; if others have written meanwhile, it follows, and decides
//! again. So every decision was taken on all that stands before it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::postgres::directory::{DirectoryAppend, DirectoryPage};
use super::postgres::{Db, DbError};
use tollgate_ledger::{
    AppendOutcome, LedgerError, Record, Seq, WriteGroup, WriteLog, WritePage, WriteTurn,
};

/// Maximum number of writes read at once: some 500 bytes each, and a new node reads all.
const PULLED_MAX: u32 = 1000;

/// A node's access to the directory.
#[derive(Debug)]
pub struct Directory {
    db: Db,
    turn: Mutex<()>,
    /// The last place that the database was seen to have.
    head: AtomicU64,
    /// The last write that this process has seen, and its place.
    last: parking_lot::Mutex<Option<(Seq, String)>>,
    /// Reason why this node applies no more writes.
    stopped: OnceLock<Arc<str>>,
}

impl Directory {
    /// The directory in this database.
    #[must_use]
    pub fn new(db: Db) -> Self {
        let (head, last) = (AtomicU64::new(0), parking_lot::Mutex::new(None));
        Self { db, turn: Mutex::new(()), head, last, stopped: OnceLock::new() }
    }

    /// The database in which the directory is.
    #[must_use]
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// The last place that the database was seen to have.
    #[must_use]
    pub fn head(&self) -> Seq {
        self.head.load(Ordering::Relaxed)
    }

    /// Returns the reason why this node follows no more writes; it still serves with those it has. Another
    /// version or another database is needed then.
    #[must_use]
    pub fn stopped(&self) -> Option<Arc<str>> {
        self.stopped.get().cloned()
    }

    fn go_on(&self) -> Result<(), DbError> {
        match self.stopped.get() {
            None => Ok(()),
            Some(why) => Err(DbError::Failed(format!("this node follows no further: {why}"))),
        }
    }
}

#[async_trait]
impl WriteLog for Directory {
    async fn turn(&self) -> WriteTurn<'_> {
        WriteTurn(self.turn.lock().await)
    }

    async fn append(
        &self,
        _turn: &WriteTurn<'_>,
        after: Seq,
        write_id: &str,
        records: &[Record],
    ) -> Result<AppendOutcome, LedgerError> {
        self.go_on()?;
        let appended = self.db.append(after, write_id, records).await?;
        if let DirectoryAppend::At(seq) = appended {
            self.head.fetch_max(seq, Ordering::Relaxed);
            *self.last.lock() = Some((seq, write_id.to_owned()));
        }
        Ok(match appended {
            DirectoryAppend::At(seq) => AppendOutcome::Appended(seq),
            DirectoryAppend::Behind => AppendOutcome::Behind,
            DirectoryAppend::Refused(refused) => AppendOutcome::Refused(refused.into()),
        })
    }

    async fn pull(&self, _turn: &WriteTurn<'_>, after: Seq) -> Result<WritePage, LedgerError> {
        self.go_on()?;
        let DirectoryPage { head, at, groups } = self.db.pull(after, PULLED_MAX).await?;
        // Stored, not raised: a restored database has an earlier end, and this is where that shows.
        self.head.store(head, Ordering::Relaxed);
        if head < after {
            return Err(self.stop(format!(
                "it ends at {head}, and this node has followed it up to {after}: it is another \
                 fleet's, or was restored to an earlier state"
            )));
        }
        let is_other = |(seq, id): &(Seq, String)| *seq == after && Some(id) != at.as_ref();
        if self.last.lock().as_ref().is_some_and(is_other) {
            return Err(self.stop(format!(
                "another write stands at {after} than this node has followed: the database was \
                 restored to an earlier state, or a failover has lost what was written"
            )));
        }
        let mut last = at.map(|id| (after, id));
        let mut page = WritePage { groups: Vec::with_capacity(groups.len()), is_last: true };
        for (group, seq) in groups.into_iter().zip(after.saturating_add(1)..) {
            let records = match postcard::from_bytes(&group.bytes) {
                _ if group.seq != seq => Err(format!("there is nothing at {seq}")),
                Ok(records) => Ok(records),
                Err(error) => Err(format!(
                    "what stands at {seq} is not known to this version ({error}): upgrade this node"
                )),
            };
            match records {
                Ok(records) => {
                    page.groups.push(WriteGroup { seq, records });
                    last = Some((seq, group.write_id));
                }
                // What comes before it is taken over first.
                Err(_) if !page.groups.is_empty() => break,
                Err(why) => return Err(self.stop(why)),
            }
        }
        page.is_last = page.groups.last().map_or(after, |group| group.seq) >= head;
        if !page.is_last && page.groups.is_empty() {
            return Err(self.stop(format!("it ends at {head}, and nothing stands behind {after}")));
        }
        *self.last.lock() = last;
        Ok(page)
    }

    fn stop(&self, why: String) -> LedgerError {
        log::error!(place = self.db.place(); "the fleet's directory is followed no further: {why}");
        let why = self.stopped.get_or_init(|| why.into());
        DbError::Failed(format!("this node follows no further: {why}")).into()
    }
}
