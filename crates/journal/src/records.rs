//! The journal's records one after the other, for those who read all of it.

use std::path::Path;

use crate::Seq;
use crate::error::Error;
use crate::format::Format;
use crate::reader::Reader;
use crate::segment;

/// The records of a journal from one place to another. At most one segment (64 MiB) is in memory.
///
/// Another process may append meanwhile: what stands up to a record that was on disk before this was
/// opened does not change any more.
pub struct Records<F: Format> {
    reader: Reader<F>,
    /// First requested position.
    from: Seq,
    /// The last that is wanted; `None` for the journal's end.
    to: Option<Seq>,
    frame: Vec<F::Record>,
    /// Position of the next record in `frame`, which is reversed.
    next_seq: Seq,
    is_over: bool,
}

impl<F: Format> Records<F> {
    /// The records of the journal in the directory `dir` from `from` up to `to`, or up to its end. `to` must be on disk. The segment that has `from` is read from its beginning.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn open(dir: &Path, from: Seq, to: Option<Seq>) -> Result<Self, Error> {
        let reader = Reader::open(dir, segment::before(dir, from)?)?;
        Ok(Self { reader, from, to, frame: Vec::new(), next_seq: 0, is_over: false })
    }

    fn next_frame(&mut self) -> Result<bool, Error> {
        if self.to.is_some_and(|to| self.reader.position().seq >= to) {
            return Ok(false);
        }
        let Some(frame) = self.reader.next_frame()? else { return Ok(false) };
        self.next_seq = frame.first_seq;
        self.frame = frame.records;
        self.frame.reverse();
        Ok(true)
    }
}

impl<F: Format> Iterator for Records<F> {
    type Item = Result<(Seq, F::Record), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            let Some(record) = self.frame.pop() else {
                match self.next_frame() {
                    Ok(true) => continue,
                    Ok(false) => break,
                    Err(error) => {
                        self.is_over = true;
                        return Some(Err(error));
                    }
                }
            };
            let seq = self.next_seq;
            self.next_seq = seq.saturating_add(1);
            if self.to.is_some_and(|to| seq > to) {
                break;
            }
            if seq >= self.from {
                return Some(Ok((seq, record)));
            }
        }
        self.is_over = true;
        None
    }
}
