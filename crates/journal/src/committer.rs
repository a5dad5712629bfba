//! The thread that writes the journal: gather, write, flush once, wake who waits, hand on.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::vec::Drain;

pub use crate::event::Event;
use crate::format::Format;
use crate::journal::{CommitterWork, Journal};
use crate::segment::Position;
use crate::space::{self, Space, is_full, lacks_descriptors};
use crate::writer::Writer;

/// Retry interval of a write to a full disk.
const FULL_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum wait for disk space of a process that is stopping.
const LAST_WAIT: Duration = Duration::from_secs(3);
/// An idle committer looks up this rarely, and once a second while the disk is full.
const IDLE_INTERVAL: Duration = Duration::from_secs(3600);
/// Capacity in records that the two alternating groups keep. What a full disk or a burst needed
/// beyond that is freed.
const RECORDS_KEPT: usize = 1024;

/// A group that is on disk.
#[derive(Debug)]
pub struct CommittedGroup<'a, E> {
    /// Its records, in order.
    pub entries: Drain<'a, E>,
    /// End of the journal after the group.
    pub end: Position,
    /// Growth of the journal in bytes.
    pub bytes: u64,
    /// Duration of the write and the flush.
    pub took: Duration,
}

/// Fatal failure of a [`Committer`]. The process must end: its last write may or may not be on
/// disk, and after a failed flush the kernel may have dropped the pages, so that a second flush
/// would succeed without them.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A write failed, and not for want of room.
    #[error("the journal cannot be written: {0}")]
    Write(#[source] io::Error),
    /// A flush to the disk failed.
    #[error("the journal cannot be flushed: {0}")]
    Flush(#[source] io::Error),
}

/// State of the thread that writes a journal.
pub struct Committer<F: Format, C, N> {
    journal: Arc<Journal<F::Entry>>,
    writer: Writer<F>,
    space: Space,
    on_group: C,
    on_event: N,
}

impl<F, C, N> Committer<F, C, N>
where
    F: Format,
    C: FnMut(CommittedGroup<'_, F::Entry>),
    N: FnMut(Event<'_>),
{
    /// A committer that writes what `journal` has with `writer`, whose end must be that of `journal`, on
    /// the disk that `space` watches. `on_group` gets each group when it is on disk, after those were
    /// woken who wait for it; `on_event` hears of what is out of the ordinary. Both must be quick:
    /// nothing is written meanwhile.
    pub fn new(
        journal: Arc<Journal<F::Entry>>,
        writer: Writer<F>,
        space: Space,
        on_group: C,
        on_event: N,
    ) -> Self {
        Self { journal, writer, space, on_group, on_event }
    }

    /// Runs until [`Journal::stop`]; gives where the journal ends on disk. What passes by itself, a full
    /// disk or a want of descriptors, is waited for.
    ///
    /// # Errors
    /// [`CommitError`]. Those who wait for a record are told nothing then.
    pub fn run(mut self) -> Result<Position, CommitError> {
        self.writer.open_ahead();
        let mut group = Vec::new();
        loop {
            let is_full = self.space.check(&mut self.on_event);
            self.journal.set_disk_full(is_full);
            let idle = if is_full { space::CHECK_INTERVAL } else { IDLE_INTERVAL };
            match self.journal.next_group(idle, &mut group) {
                CommitterWork::Group => {
                    let began = Instant::now();
                    let before = self.writer.position();
                    // A failed flush ends the loop without waking anybody: a waiter that heard of an
                    // error could retry a record which is on disk after all.
                    let Some(end) = self.commit(&group)? else { break };
                    let took = began.elapsed();
                    let bytes = end.offset.checked_sub(before.offset).unwrap_or(end.offset);
                    // Waiters first: customers' responses wait for this, while opening the next segment
                    // and the projection do not hurry anyone.
                    self.journal.committed(end.seq);
                    self.writer.open_ahead();
                    let entries = group.drain(..);
                    (self.on_group)(CommittedGroup { entries, end, bytes, took });
                    // A full disk lets tens of thousands of records gather, whose memory would stay for
                    // good.
                    group.shrink_to(RECORDS_KEPT);
                }
                CommitterWork::Idle => {}
                CommitterWork::Stop => break,
            }
        }
        // Only now, since nothing is flushed any more: whoever still waits has a record that was given up.
        self.journal.dismiss_waiters();
        Ok(self.writer.position())
    }

    /// Writes a group; `None` when the process is to end and there is no room for it.
    fn commit(&mut self, entries: &[F::Entry]) -> Result<Option<Position>, CommitError> {
        let mut stopping: Option<Instant> = None;
        let end = loop {
            match self.writer.write(entries) {
                Ok(end) => break end,
                Err(error) if is_full(&error) || lacks_descriptors(&error) => {
                    // Admission stops at once, and not with the next look at the free space a second
                    // later.
                    self.journal.set_disk_full(true);
                    if self.journal.is_stopping() {
                        let since = *stopping.get_or_insert_with(Instant::now);
                        if since.elapsed() >= LAST_WAIT {
                            self.give_up(entries.len());
                            return Ok(None);
                        }
                    }
                    self.wait(&error);
                }
                Err(error) => return Err(CommitError::Write(error)),
            }
        };
        // Never retried: after a failed fsync the kernel marks the dirty pages clean, so that a second
        // one succeeds without having written them.
        self.writer.flush(end).map_err(CommitError::Flush)?;
        Ok(Some(end))
    }

    /// Waits for a missing resource, or frees disk space for the write.
    fn wait(&mut self, error: &io::Error) {
        let event = if !is_full(error) {
            Event::WaitsForDescriptor { error }
        // The ballast frees room for records of calls that are in flight, which cannot be refused any
        // more.
        } else if self.space.give_up_ballast() {
            (self.on_event)(Event::BallastGivenUp);
            return;
        } else {
            Event::WaitsForRoom
        };
        if self.space.should_say_waiting() {
            (self.on_event)(event);
        }
        std::thread::sleep(FULL_RETRY_INTERVAL);
    }

    /// Ends without these records and later ones, like a crash: none was reported as durable.
    fn give_up(&mut self, records: usize) {
        let records = records.saturating_add(self.journal.drop_queued());
        // The frame may stand in the file already: left there, the next start would take calls as
        // recorded whose customers were told otherwise.
        if let Err(error) = self.writer.cut() {
            (self.on_event)(Event::NotCut { error: &error });
        }
        (self.on_event)(Event::GivenUp { records });
    }
}
