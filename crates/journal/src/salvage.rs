//! Reading a damaged journal: what stands behind the damage is found again by its frames' checksums.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use crate::Seq;
use crate::error::Error;
use crate::format::Format;
use crate::frame::{self, Chain, Frame};
use crate::segment::{self, Position};

/// A damaged range of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file of the segment.
    pub path: PathBuf,
    /// Start of the damage, in bytes from the beginning of the file.
    pub from: u64,
    /// First readable byte after it, or the end of the file.
    pub to: u64,
    /// Description of the damage, for people.
    pub what: String,
}

/// Item found by a salvage.
#[derive(Debug)]
pub enum SalvageItem<R> {
    /// A frame. Whether it is proven to follow what was found before: by the hash chain, across
    /// damage as well if that has left the chain.
    Frame(Frame<R>, bool),
    /// A range without a valid frame, which is skipped.
    Damage(Damage),
}

/// Reads whatever can be read of a journal, in order.
pub struct Salvage<F> {
    dir: PathBuf,
    to_come: Vec<Seq>,
    path: PathBuf,
    bytes: Vec<u8>,
    /// Current position, with segment and offset in the damaged journal.
    position: Position,
    /// True if no damage was found so far.
    is_whole: bool,
    torn_bytes: u64,
    format: PhantomData<fn() -> F>,
}

impl<F: Format> Salvage<F> {
    /// Prepares to read the journal in `dir`.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let mut to_come = segment::list(dir)?;
        let begin = to_come.first().map_or(0, |first_seq| F::origin(*first_seq));
        to_come.reverse();
        Ok(Self {
            dir: dir.to_owned(),
            to_come,
            path: PathBuf::new(),
            bytes: Vec::new(),
            position: Position { seq: begin, ..Position::default() },
            is_whole: true,
            torn_bytes: 0,
            format: PhantomData,
        })
    }

    /// The place up to which nothing is wrong; once something was, it does not move any more.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The length of an unfinished write at the end.
    #[must_use]
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// Current file and the offset after the last result.
    #[must_use]
    pub fn place(&self, walk: &SalvageCursor) -> (PathBuf, u64) {
        (self.path.clone(), walk.offset)
    }

    /// Next item; `None` at the end.
    ///
    /// # Errors
    /// When a file cannot be read at all.
    pub fn next(
        &mut self,
        walk: &mut SalvageCursor,
    ) -> Result<Option<SalvageItem<F::Record>>, Error> {
        loop {
            let at = usize::try_from(walk.offset).unwrap_or(usize::MAX);
            let unread = self.bytes.get(at..).unwrap_or_default();
            if unread.is_empty() {
                let Some(first_seq) = self.to_come.pop() else { return Ok(None) };
                if let Some(damage) = self.enter(first_seq, walk)? {
                    self.is_whole = false;
                    return Ok(Some(SalvageItem::Damage(damage)));
                }
                continue;
            }
            let what = match frame::decode_anywhere::<F>(unread, &walk.chain) {
                Ok((frame, continues)) => {
                    let follows = frame.first_seq == walk.seq.saturating_add(1);
                    walk.offset += frame.bytes as u64;
                    walk.seq = frame.first_seq + frame.records.len() as u64 - 1;
                    walk.chain = frame.chain;
                    // A frame that does not follow ends the sound part as damage does: records before it
                    // are missing.
                    if self.is_whole && continues && follows {
                        self.position.offset = walk.offset;
                        self.position.seq = walk.seq;
                        self.position.chain = walk.chain;
                    } else if self.is_whole {
                        self.is_whole = false;
                    }
                    return Ok(Some(SalvageItem::Frame(frame, continues)));
                }
                // Only at the very end: torn writes elsewhere were followed by a flush, so they are
                // damage.
                Err(_) if self.to_come.is_empty() && frame::is_torn(unread, walk.offset) => {
                    self.torn_bytes = unread.len() as u64;
                    walk.offset = self.bytes.len() as u64;
                    continue;
                }
                Err(what) => what,
            };
            self.is_whole = false;
            // A header that is whole says where its frame ends and how the chain goes on.
            let announced = frame::chain_after(unread).zip(frame::whole_bytes(unread));
            let skipped = match announced {
                Some((chain, length)) if length <= unread.len() => {
                    walk.chain = chain;
                    length
                }
                // The magic alone may occur within a record: only a header with its own checksum counts.
                _ => frame::next_header(unread).unwrap_or(unread.len()),
            };
            let from = walk.offset;
            walk.offset += skipped as u64;
            let path = self.path.clone();
            return Ok(Some(SalvageItem::Damage(Damage { path, from, to: walk.offset, what })));
        }
    }

    /// Begins a segment, and reports damage of its header.
    fn enter(&mut self, first_seq: Seq, walk: &mut SalvageCursor) -> Result<Option<Damage>, Error> {
        self.path = segment::path(&self.dir, first_seq);
        let Some(bytes) = segment::content::<F>(&self.dir, first_seq)? else {
            self.bytes = Vec::new();
            walk.offset = 0;
            let (path, what) = (self.path.clone(), "this file is gone".to_owned());
            return Ok(Some(Damage { path, from: 0, to: 0, what }));
        };
        self.bytes = bytes;
        let header_bytes = (frame::SEGMENT_HEADER_BYTES as u64).min(self.bytes.len() as u64);
        walk.offset = header_bytes;
        let what = match frame::decode_segment_header(&self.bytes) {
            Ok((begin, chain)) => {
                let continues = begin == walk.seq.saturating_add(1) && chain == walk.chain;
                walk.chain = chain;
                if continues && begin == first_seq {
                    if self.is_whole {
                        self.position.segment = first_seq;
                        self.position.offset = header_bytes;
                    }
                    return Ok(None);
                }
                format!(
                    "records {} to {} are missing before this file, or it is misnamed",
                    walk.seq.saturating_add(1),
                    begin.saturating_sub(1)
                )
            }
            Err(_) if self.to_come.is_empty() && self.bytes.len() < frame::SEGMENT_HEADER_BYTES => {
                self.torn_bytes = self.bytes.len().max(1) as u64;
                walk.offset = self.bytes.len() as u64;
                return Ok(None);
            }
            Err(what) => what.to_owned(),
        };
        let path = self.path.clone();
        Ok(Some(Damage { path, from: 0, to: header_bytes, what }))
    }
}

/// Progress of a salvage.
#[derive(Debug)]
pub struct SalvageCursor {
    offset: u64,
    /// Position of the last record found.
    pub seq: Seq,
    /// Hash chain after it.
    pub chain: Chain,
}

impl SalvageCursor {
    /// The beginning of the journal that `salvage` reads.
    #[must_use]
    pub fn begin<F>(salvage: &Salvage<F>) -> Self {
        Self { offset: 0, seq: salvage.position.seq, chain: Chain::default() }
    }
}
