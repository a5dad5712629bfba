//! One segment's frames one after the other, with no more of it in memory than a frame: for those who
//! read closed segments beside a process that appends.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use crate::Seq;
use crate::error::Error;
use crate::format::Format;
use crate::frame::{self, Chain, FRAME_HEADER_BYTES, Frame, SEGMENT_HEADER_BYTES};
use crate::seal::Seal;
use crate::segment;

/// Read size, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// The frames of a segment.
pub struct Frames<F> {
    input: Box<dyn Read>,
    /// The file that errors name.
    path: PathBuf,
    frame: Vec<u8>,
    format: PhantomData<fn() -> F>,
    /// Offset of the next frame in the segment, in bytes.
    pub offset: u64,
    /// Position of the last record read.
    pub seq: Seq,
    /// The chain up to there.
    pub chain: Chain,
    /// The chain before the segment.
    pub chain_before: Chain,
}

impl<F: Format> Frames<F> {
    /// The frames of the segment that begins with `first_seq`: of the journal in `dir`, or of the place
    /// to which it was moved.
    ///
    /// # Errors
    /// When it is in neither, or does not begin as a segment does.
    pub fn open(dir: &Path, first_seq: Seq) -> Result<Self, Error> {
        let path = segment::path(dir, first_seq);
        match File::open(&path) {
            Ok(file) => {
                let input = Box::new(BufReader::with_capacity(BUFFER_BYTES, file));
                Self::read_from(input, &path, first_seq)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match <Seal>::find(dir, first_seq)?.and_then(|seal| seal.archived) {
                    Some(archived) => {
                        let input = F::open_archived(&archived, Some(dir))
                            .map_err(Error::io(&archived.path))?;
                        Self::read_from(input, &archived.path, first_seq)
                    }
                    None => Err(Error::io(&path)(error)),
                }
            }
            Err(error) => Err(Error::io(&path)(error)),
        }
    }

    /// The frames of a segment that is read from `input`; `path` is what errors name.
    ///
    /// # Errors
    /// When it does not begin as this segment does.
    pub(crate) fn read_from(
        mut input: Box<dyn Read>,
        path: &Path,
        first_seq: Seq,
    ) -> Result<Self, Error> {
        let mut header = [0; SEGMENT_HEADER_BYTES];
        input.read_exact(&mut header).map_err(Error::io(path))?;
        let damaged =
            |what: &str| Error::Damaged { path: path.to_owned(), offset: 0, what: what.to_owned() };
        let (found, chain) = frame::decode_segment_header(&header).map_err(damaged)?;
        if found != first_seq {
            return Err(damaged("this is another segment"));
        }
        Ok(Self {
            input,
            path: path.to_owned(),
            frame: Vec::new(),
            format: PhantomData,
            offset: SEGMENT_HEADER_BYTES as u64,
            seq: first_seq.saturating_sub(1),
            chain,
            chain_before: chain,
        })
    }

    /// The next frame, or `None` at the segment's end.
    ///
    /// # Errors
    /// [`Error::Damaged`], also for a frame that was not finished.
    pub fn next_frame(&mut self) -> Result<Option<Frame<F::Record>>, Error> {
        self.frame.resize(FRAME_HEADER_BYTES, 0);
        match self.fill(0) {
            Ok(0) => return Ok(None),
            Ok(read) if read < FRAME_HEADER_BYTES => {
                return Err(self.damaged("the frame is incomplete".to_owned()));
            }
            read => read.map_err(Error::io(&self.path))?,
        };
        let bytes = frame::whole_bytes(&self.frame)
            .ok_or_else(|| self.damaged("the frame's header is damaged".to_owned()))?;
        self.frame.resize(bytes, 0);
        self.fill(FRAME_HEADER_BYTES).map_err(Error::io(&self.path))?;
        let frame = frame::decode::<F>(&self.frame, self.seq.saturating_add(1), &self.chain)
            .map_err(|what| self.damaged(what))?;
        self.offset += frame.bytes as u64;
        self.seq += frame.records.len() as u64;
        self.chain = frame.chain;
        Ok(Some(frame))
    }

    /// Fills the frame from `begin` on, as far as there is something to read.
    fn fill(&mut self, begin: usize) -> io::Result<usize> {
        let mut read = begin;
        while let Some(rest) = self.frame.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.frame.truncate(read);
        Ok(read)
    }

    fn damaged(&self, what: String) -> Error {
        Error::Damaged { path: self.path.clone(), offset: self.offset, what }
    }
}
