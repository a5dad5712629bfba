//! Frames one after the other, over all segments, with a segment in memory at a time.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use crate::Seq;
use crate::error::Error;
use crate::format::Format;
use crate::frame::{self, Frame};
use crate::seal::Seal;
use crate::segment::{self, Position};

/// Reads frames in order and checks that each continues the one before.
pub struct Reader<F> {
    dir: PathBuf,
    /// Segments that are still to be read, the next one last.
    to_come: Vec<Seq>,
    position: Position,
    /// Bytes of the current segment from `begin` on.
    bytes: Vec<u8>,
    begin: u64,
    torn_bytes: u64,
    format: PhantomData<fn() -> F>,
}

impl<F: Format> Reader<F> {
    /// Prepares to read what follows `from`.
    ///
    /// # Errors
    /// When files cannot be read, or do not reach as far as `from`.
    pub fn open(dir: &Path, from: Position) -> Result<Self, Error> {
        let mut to_come = segment::list(dir)?;
        to_come.retain(|first_seq| *first_seq > from.segment);
        to_come.reverse();
        let mut reader = Self {
            dir: dir.to_owned(),
            to_come,
            position: from,
            bytes: Vec::new(),
            begin: 0,
            torn_bytes: 0,
            format: PhantomData,
        };
        if from.segment > 0 {
            reader.resume(from)?;
        } else if let Some(first_seq) = reader.to_come.last() {
            let begin = F::origin(*first_seq);
            if *first_seq == begin.saturating_add(1) {
                reader.position.seq = begin;
            }
        }
        Ok(reader)
    }

    fn resume(&mut self, from: Position) -> Result<(), Error> {
        let path = segment::path(&self.dir, from.segment);
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.resume_archived(from);
            }
            opened => opened.map_err(Error::io(&path))?,
        };
        // Seeking behind the end would succeed and read nothing, as if the journal ended there.
        if file.metadata().map_err(Error::io(&path))?.len() < from.offset {
            return self.is_behind(from);
        }
        file.seek(SeekFrom::Start(from.offset)).map_err(Error::io(&path))?;
        file.read_to_end(&mut self.bytes).map_err(Error::io(&path))?;
        self.begin = from.offset;
        Ok(())
    }

    fn resume_archived(&mut self, from: Position) -> Result<(), Error> {
        let is_archived =
            <Seal>::find(&self.dir, from.segment)?.is_some_and(|s| s.archived.is_some());
        if !is_archived {
            return self.is_behind(from);
        }
        self.bytes = segment::whole::<F>(&self.dir, from.segment)?;
        if (self.bytes.len() as u64) < from.offset {
            return self.is_behind(from);
        }
        self.begin = 0;
        Ok(())
    }

    /// The journal does not reach as far as `from`: finds out how far it does.
    fn is_behind(&self, from: Position) -> Result<(), Error> {
        let mut whole = Self::open(&self.dir, Position::default())?;
        while whole.next_frame()?.is_some() {}
        Err(Error::Behind { end: whole.position.seq, expected: from.seq })
    }

    /// The next frame, or `None` at the journal's end.
    ///
    /// # Errors
    /// [`Error::Damaged`] for bytes that are neither a frame nor an unfinished write at the end.
    pub fn next_frame(&mut self) -> Result<Option<Frame<F::Record>>, Error> {
        if self.torn_bytes > 0 {
            return Ok(None);
        }
        while self.unread().is_empty() {
            let Some(first_seq) = self.to_come.pop() else {
                self.check_seal()?;
                return Ok(None);
            };
            if !self.enter(first_seq)? {
                return Ok(None);
            }
        }
        let next_seq = self.position.seq.saturating_add(1);
        match frame::decode::<F>(self.unread(), next_seq, &self.position.chain) {
            Ok(frame) => {
                self.position.offset += frame.bytes as u64;
                self.position.seq += frame.records.len() as u64;
                self.position.chain = frame.chain;
                Ok(Some(frame))
            }
            Err(_) if self.is_last() && frame::is_torn(self.unread(), self.position.offset) => {
                // What is sealed was whole once.
                self.check_seal()?;
                self.torn_bytes = self.unread().len() as u64;
                Ok(None)
            }
            Err(what) => Err(self.damaged(what)),
        }
    }

    /// Position of the reader: the journal's end, once [`Reader::next_frame`] has returned `None`.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The length of the unfinished write at the journal's end, found by [`Reader::next_frame`].
    #[must_use]
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    fn is_last(&self) -> bool {
        self.to_come.is_empty()
    }

    fn unread(&self) -> &[u8] {
        let read = usize::try_from(self.position.offset - self.begin).unwrap_or(usize::MAX);
        self.bytes.get(read..).unwrap_or_default()
    }

    /// Begins a segment; false if it is the last one and its creation was not finished.
    fn enter(&mut self, first_seq: Seq) -> Result<bool, Error> {
        let before = self.position;
        self.check_seal()?;
        self.bytes = segment::whole::<F>(&self.dir, first_seq)?;
        self.begin = 0;
        self.position = Position { segment: first_seq, offset: 0, ..before };
        let expected = (before.seq.saturating_add(1), before.chain);
        match frame::decode_segment_header(&self.bytes) {
            Ok(found) if found == expected && found.0 == first_seq => {
                self.position.offset = frame::SEGMENT_HEADER_BYTES as u64;
                Ok(true)
            }
            Ok((found, _)) if found != expected.0 => Err(self.damaged(format!(
                "record {} is missing: the segment that holds it is gone, or this one is misnamed",
                expected.0
            ))),
            Ok(_) => Err(self.damaged("the segment does not continue the hash chain".to_owned())),
            Err(_) if self.is_last() && segment::is_unfinished_segment(&self.bytes) => {
                self.torn_bytes = self.bytes.len().max(1) as u64;
                // The writer removes that file and begins the segment again, so reading has ended before
                // it.
                self.position = before;
                Ok(false)
            }
            Err(what) => Err(self.damaged(what.to_owned())),
        }
    }

    /// Checks the position at the end of a segment against the seal.
    fn check_seal(&self) -> Result<(), Error> {
        if self.position.segment == 0 {
            return Ok(());
        }
        let Some(seal) = <Seal>::find(&self.dir, self.position.segment)? else { return Ok(()) };
        if (seal.last_seq, seal.chain) == (self.position.seq, self.position.chain) {
            return Ok(());
        }
        let last = seal.last_seq;
        Err(self
            .damaged(format!("the segment was sealed with record {last} as its last, and ends")))
    }

    fn damaged(&self, what: String) -> Error {
        let mut path = segment::path(&self.dir, self.position.segment);
        if !path.exists()
            && let Ok(Some(Seal { archived: Some(archived), .. })) =
                <Seal>::find(&self.dir, self.position.segment)
        {
            path = archived.path;
        }
        Error::Damaged { path, offset: self.position.offset, what }
    }
}
