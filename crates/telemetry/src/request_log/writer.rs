//! The thread that writes the log: opens the files, appends what has gathered, removes the oldest.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_journal::ring::{self, RingReader, Segment};

use super::heads::{self, Heads};
use super::record::{self, LAYOUT, RingPosition};
use super::{LogState, feed};

/// The log is in so many files, so that little is lost when the oldest is removed, and few are open.
const SEGMENTS: u64 = 32;
/// Number of bytes after which the heads are saved: the most that a start after a crash must read, some 50 ms
/// in the background.
const HEADS_INTERVAL_BYTES: u64 = 32 << 20;
/// Divisor of the log's maximum size: the share that the file of heads may take. Saving needs twice that,
/// since the old file stays until the new one is renamed.
const HEADS_SHARE: u64 = 16;
/// While less is free, nothing is written: twice what the ledger needs for itself.
const FREE_BYTES_MIN: u64 = 128 << 20;
/// Interval of checking the free space.
const SPACE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// State of the writing thread.
pub(super) struct LogWriter {
    pub(super) shared: Arc<LogState>,
    dir: PathBuf,
    size_max: u64,
    /// The file that is written; `None` before the first.
    current: Option<Segment>,
    /// Bytes since the heads were saved.
    unsaved_bytes: u64,
    space: Option<(Instant, bool)>,
    /// True once it was logged that nothing can be written.
    is_reported: bool,
}

impl LogWriter {
    pub(super) fn new(shared: Arc<LogState>, dir: PathBuf, size_max: u64) -> Self {
        let (current, unsaved_bytes, space, is_reported) = (None, 0, None, false);
        Self { shared, dir, size_max, current, unsaved_bytes, space, is_reported }
    }

    /// Runs until the queue is closed.
    pub(super) fn run(mut self) {
        if let Err(error) = self.open() {
            log::error!(
                "the request log in {} cannot be opened, and nothing is written to it: {error}",
                self.dir.display()
            );
            // Else requests would fill a queue that nobody empties.
            self.shared.queue.close();
        }
        // Also after a failure: lists then find an empty log at once instead of waiting for it.
        self.shared.ready();
        let mut batch = Vec::new();
        while let Some(gathered) = self.shared.queue.gather(&mut batch) {
            let lost = self.write(&mut batch);
            self.shared.queue.done(&gathered, lost);
            batch.clear();
        }
        self.save_heads();
    }

    /// Finds the files and the chains' heads, and cuts off what a crash has left of a record.
    fn open(&mut self) -> io::Result<()> {
        let began = Instant::now();
        let mut reader = RingReader::new(ring::open_all(&self.dir, &LAYOUT)?, LAYOUT);
        let (heads, whole_to) = heads::recover(&self.dir, &mut reader)?;
        let mut segments = reader.segments().to_vec();
        if let Some(last) = segments.last_mut() {
            let torn = last.end().saturating_sub(whole_to);
            if torn > 0 {
                log::warn!("the request log's last {torn} bytes are no whole record; they are cut");
            }
            // A position is an offset in the files: behind a torn record no reader would find the next one.
            last.cut(whole_to)?;
        }
        self.current = segments.last().cloned();
        log::debug!(
            "request log open: {} files, {} accounts, {} ms",
            segments.len(),
            heads.len(),
            began.elapsed().as_millis()
        );
        self.shared.change(|index| {
            index.segments = segments;
            index.heads = heads;
        });
        self.remove_oldest(0)
    }

    /// Writes a batch; gives the number of records that were lost.
    fn write(&mut self, batch: &mut [u8]) -> u64 {
        let mut rest = batch;
        while !rest.is_empty() {
            match self.write_some(rest) {
                Ok(bytes) => rest = rest.get_mut(bytes..).unwrap_or_default(),
                Err(error) => {
                    if !mem::replace(&mut self.is_reported, true) {
                        log::warn!("the request log cannot be written: {error}");
                    }
                    return LAYOUT.frames(rest).count() as u64;
                }
            }
        }
        self.is_reported = false;
        if self.unsaved_bytes >= HEADS_INTERVAL_BYTES {
            self.save_heads();
        }
        0
    }

    /// Writes as many frames as the current file takes; gives their bytes.
    fn write_some(&mut self, batch: &mut [u8]) -> io::Result<usize> {
        self.check_space()?;
        let first = LAYOUT.frames(batch).next().ok_or(io::ErrorKind::InvalidData)?;
        let mut segment = self.segment_for(first as u64)?;
        let room = self.segment_bytes().saturating_sub(segment.bytes);
        let (chunk, new) = {
            let index = self.shared.index();
            let mut chain = RecordLinks { heads: &index.heads, new: HashMap::new() };
            let bytes = chain.link_all(batch, segment.end(), room);
            (bytes, chain.new)
        };
        let frames = batch.get(..chunk).unwrap_or_default();
        let at = segment.end();
        segment.append(frames)?;
        self.unsaved_bytes += chunk as u64;
        self.current = Some(segment.clone());
        self.shared.change(|index| {
            // Behind the append: whoever reads the new heads finds their frames in the file.
            index.heads.extend(new);
            match index.segments.last_mut() {
                Some(last) if last.base == segment.base => *last = segment,
                _ => index.segments.push(segment),
            }
        });
        feed::tell(&self.shared.live, frames, at);
        Ok(chunk)
    }

    /// The file that the next record of this length goes to.
    fn segment_for(&mut self, bytes: u64) -> io::Result<Segment> {
        let base = match &self.current {
            Some(segment) if segment.bytes + bytes <= self.segment_bytes() => {
                return Ok(segment.clone());
            }
            Some(full) => full.end(),
            None => 0,
        };
        // Before the new file is there: the log is never larger than its size.
        self.remove_oldest(self.segment_bytes())?;
        Segment::create(&self.dir, base, &LAYOUT)
    }

    fn segment_bytes(&self) -> u64 {
        self.size_max / SEGMENTS
    }

    /// Removes files until there is room for so many more bytes, and forgets where they were.
    fn remove_oldest(&self, room: u64) -> io::Result<()> {
        let (mut segments, heads_bytes) = {
            let index = self.shared.index();
            (index.segments.clone(), self.heads_bytes(&index.heads).unwrap_or(0))
        };
        let mut total = segments.iter().map(|segment| segment.bytes).sum::<u64>();
        let mut removed = 0;
        // Twice the heads, since the new file stands beside the old one until it is renamed. The file that is
        // written stays.
        while total + 2 * heads_bytes + room > self.size_max && segments.len() > 1 {
            let oldest = segments.remove(0);
            ring::remove(&self.dir, &oldest, &LAYOUT)?;
            total -= oldest.bytes;
            removed += 1;
        }
        if removed > 0 {
            self.shared.change(|index| {
                let oldest = segments.first().map_or(0, |segment| segment.base);
                index.heads.retain(|_, position| *position >= oldest);
                index.heads.shrink_to_fit();
                index.segments = segments;
            });
        }
        Ok(())
    }

    /// The length of the file of heads; `None` if it would be too long to be kept.
    fn heads_bytes(&self, heads: &Heads) -> Option<u64> {
        Some(heads::file_bytes(heads)).filter(|bytes| *bytes <= self.size_max / HEADS_SHARE)
    }

    fn save_heads(&mut self) {
        self.unsaved_bytes = 0;
        let Some(covers) = self.current.as_ref().map(Segment::end) else { return };
        let heads = self.shared.index().heads.clone();
        if self.heads_bytes(&heads).is_none() {
            // A start then reads the whole log, which is bounded as well.
            heads::forget(&self.dir);
        } else if let Err(error) = heads::save(&self.dir, &heads, covers) {
            log::warn!("the request log's heads cannot be saved: {error}");
        }
    }

    /// Refuses to write where the ledger will need the room.
    fn check_space(&mut self) -> io::Result<()> {
        let is_fresh = |at: Instant| at.elapsed() < SPACE_CHECK_INTERVAL;
        let has_room = match self.space {
            Some((at, has_room)) if is_fresh(at) => has_room,
            _ => fs4::available_space(&self.dir)? >= FREE_BYTES_MIN,
        };
        if !self.space.is_some_and(|(at, _)| is_fresh(at)) {
            self.space = Some((Instant::now(), has_room));
        }
        if has_room { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }
}

/// Links records to those before them.
struct RecordLinks<'a> {
    heads: &'a Heads,
    /// The heads that the batch changes.
    new: HashMap<u64, RingPosition>,
}

impl RecordLinks<'_> {
    /// Links as many frames of a batch as there is room for, which go to `at`, and one at least; gives
    /// their bytes.
    fn link_all(&mut self, batch: &mut [u8], at: RingPosition, room: u64) -> usize {
        let mut bytes = 0;
        while let Some(length) = batch.get(bytes..).and_then(|frame| LAYOUT.frame_bytes(frame)) {
            if bytes > 0 && (bytes + length) as u64 > room {
                break;
            }
            let Some(frame) = batch.get_mut(bytes..bytes + length) else { break };
            self.link(frame, at + bytes as u64);
            bytes += length;
        }
        bytes
    }

    fn link(&mut self, frame: &mut [u8], position: RingPosition) {
        let Some(account) = record::head(frame).map(|head| head.account) else { return };
        // Two records of an account in one batch are linked with each other before either is in `heads`.
        let before = self.new.insert(account, position);
        let before = before.or_else(|| self.heads.get(&account).copied());
        record::seal(frame, before.unwrap_or(0));
    }
}
