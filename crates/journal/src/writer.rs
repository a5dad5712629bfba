//! Appending frames to the last segment.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::format::Format;
use crate::frame;
use crate::seal::Seal;
use crate::segment::{self, Position, SEGMENT_BYTES_MAX};

/// The file that will be the next segment, until it has a first record and with it its name.
const NEXT: &str = "next";
/// Retry interval of opening the next segment.
const NEXT_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Appends frames to the last segment.
pub struct Writer<F> {
    dir: PathBuf,
    /// The directory `dir`, opened: making a name durable must not need a descriptor.
    dir_file: File,
    /// `None` until the first record is written.
    file: Option<File>,
    /// The next segment, opened ahead: when it is needed there may be no descriptor.
    next: Option<File>,
    next_tried_at: Option<Instant>,
    /// True if the directory entry of the last segment is durable.
    is_named: bool,
    segment_bytes_max: u64,
    position: Position,
    frame: Vec<u8>,
    format: PhantomData<fn() -> F>,
}

impl<F: Format> Writer<F> {
    /// Prepares to append at `end`, where reading ended; what stands behind it was never finished
    /// and is cut.
    ///
    /// # Errors
    /// When files cannot be opened, cut or flushed.
    pub fn open(dir: &Path, end: Position) -> Result<Self, Error> {
        for first_seq in
            segment::list_here(dir)?.into_iter().filter(|first_seq| *first_seq > end.segment)
        {
            let path = segment::path(dir, first_seq);
            fs::remove_file(&path).map_err(Error::io(&path))?;
        }
        let dir_file = File::open(dir).map_err(Error::io(dir))?;
        // The removal is durable before anything is appended: a segment that came back after a crash
        // would follow another chain.
        dir_file.sync_all().map_err(Error::io(dir))?;
        let mut writer = Self {
            dir: dir.to_owned(),
            dir_file,
            file: None,
            next: None,
            next_tried_at: None,
            is_named: true,
            segment_bytes_max: SEGMENT_BYTES_MAX,
            position: end,
            frame: Vec::new(),
            format: PhantomData,
        };
        // What is sealed stays as it is: the next record begins a new segment.
        if end.segment > 0 && <Seal>::find(dir, end.segment)?.is_none() {
            let path = segment::path(dir, end.segment);
            let file = OpenOptions::new().write(true).open(&path).map_err(Error::io(&path))?;
            // Cut before the first append: a short frame over a longer torn one would leave the rest of
            // that behind it.
            file.set_len(end.offset).map_err(Error::io(&path))?;
            file.sync_all().map_err(Error::io(&path))?;
            writer.file = Some(file);
        }
        Ok(writer)
    }

    /// Begins a new segment once one has reached this many bytes, instead of [`SEGMENT_BYTES_MAX`].
    #[must_use]
    pub fn with_segments(self, segment_bytes_max: u64) -> Self {
        Self { segment_bytes_max, ..self }
    }

    /// Position after the last frame that was written and flushed.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Writes `group` as one frame, without flushing it. Can be repeated after an error: the same
    /// bytes go to the same place.
    ///
    /// # Errors
    /// The operating system's, above all [`io::ErrorKind::StorageFull`].
    pub fn write(&mut self, group: &[F::Entry]) -> io::Result<Position> {
        // Dropping the handle is all: this segment was flushed with its last group.
        if self.position.offset >= self.segment_bytes_max {
            self.file = None;
        }
        if self.file.is_none() {
            self.begin_segment()?;
        }
        // A frame that is durable in a file whose name is not would be lost with the name.
        if !self.is_named {
            self.dir_file.sync_all()?;
            self.is_named = true;
        }
        let first_seq = self.position.seq.saturating_add(1);
        let chain = frame::encode::<F>(&mut self.frame, group, first_seq, &self.position.chain)?;
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        // At an explicit offset: a retry after a partial write on a full disk overwrites it, where an
        // append would leave it in the middle.
        file.write_all_at(&self.frame, self.position.offset)?;
        Ok(Position {
            offset: self.position.offset + self.frame.len() as u64,
            seq: self.position.seq + group.len() as u64,
            chain,
            ..self.position
        })
    }

    /// Makes the output of [`Writer::write`] durable; `end` is its return value.
    ///
    /// # Errors
    /// The operating system's. The write may be lost then, even if a second flush succeeds, so the
    /// caller must not go on.
    pub fn flush(&mut self, end: Position) -> io::Result<()> {
        // `fdatasync` covers the new file length too, which is metadata needed to read the data.
        self.file.as_ref().ok_or(io::ErrorKind::NotFound)?.sync_data()?;
        self.position = end;
        Ok(())
    }

    /// Truncates everything after the last flushed frame.
    ///
    /// # Errors
    /// The operating system's.
    pub fn cut(&mut self) -> io::Result<()> {
        match &self.file {
            Some(file) => file.set_len(self.position.offset),
            None => Ok(()),
        }
    }

    /// Opens the file of the next segment, if there is none and it has not just been tried. An error
    /// can wait until the segment is needed.
    pub fn open_ahead(&mut self) {
        let tried = self.next_tried_at.is_some_and(|at| at.elapsed() < NEXT_RETRY_INTERVAL);
        if self.next.is_none() && !tried {
            self.next_tried_at = Some(Instant::now());
            self.next = self.open_next().ok();
        }
    }

    fn open_next(&self) -> io::Result<File> {
        let path = self.dir.join(NEXT);
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }

    /// Can be repeated after an error: nothing is taken over before all of it is done.
    fn begin_segment(&mut self) -> io::Result<()> {
        let first_seq = self.position.seq.saturating_add(1);
        let header = frame::encode_segment_header(first_seq, &self.position.chain);
        let file = match &self.next {
            Some(next) => next,
            None => self.next.insert(self.open_next()?),
        };
        file.write_all_at(&header, 0)?;
        file.sync_all()?;
        // Renamed once its header is on disk: a crash then leaves a segment with its header, or none.
        fs::rename(self.dir.join(NEXT), segment::path(&self.dir, first_seq))?;
        self.is_named = false;
        self.file = self.next.take();
        self.next_tried_at = None;
        self.position.segment = first_seq;
        self.position.offset = header.len() as u64;
        Ok(())
    }
}
