//! Sealing a segment that takes no more records.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use crate::Seq;
use crate::error::Error;
use crate::format::{EmptyNote, Format};
use crate::frame::Chain;
use crate::seal::{self, Seal};
use crate::segment;
use crate::stream::Frames;

/// Beginning of the segment after a closed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentStart {
    /// The number of its first record.
    pub first_seq: Seq,
    /// The hash chain before it.
    pub chain_before: Chain,
}

/// A closed segment that was read completely and verified: its seal without a summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSegment(Seal);

impl SealedSegment {
    /// Verifies the closed segment that begins with the record `first_seq`; `next` is the beginning of the
    /// following one. `see` is called with every record.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged, or does not lead to the next one.
    pub fn read<F: Format>(
        dir: &Path,
        first_seq: Seq,
        next: SegmentStart,
        mut see: impl FnMut(&F::Record),
    ) -> Result<Self, Error> {
        let file_path = segment::path(dir, first_seq);
        let open = || File::open(&file_path).map_err(Error::io(&file_path));
        // Hashed first: what follows reads it from the system's cache.
        let (sha256, bytes) = seal::hash(open()?).map_err(Error::io(&file_path))?;
        let input = Box::new(BufReader::with_capacity(seal::COPY_BYTES, open()?));
        let mut frames = Frames::<F>::read_from(input, &file_path, first_seq)?;
        while let Some(frame) = frames.next_frame()? {
            frame.records.iter().for_each(&mut see);
        }
        // A sound segment may still lack its last frames, which only the next header shows.
        if (frames.seq.saturating_add(1), frames.chain) != (next.first_seq, next.chain_before) {
            let what = format!(
                "the segment ends with record {}, and the next one does not follow it",
                frames.seq
            );
            return Err(Error::Damaged { path: file_path, offset: frames.offset, what });
        }
        Ok(Self(Seal {
            first_seq,
            last_seq: frames.seq,
            chain_before: frames.chain_before,
            chain: frames.chain,
            bytes,
            sha256,
            summary: EmptyNote {},
            archived: None,
        }))
    }

    /// The seal, with this summary. [`Seal::keep`] writes it.
    #[must_use]
    pub fn with<S>(self, summary: S) -> Seal<S> {
        let Seal { first_seq, last_seq, chain_before, chain, bytes, sha256, archived, .. } = self.0;
        Seal { first_seq, last_seq, chain_before, chain, bytes, sha256, summary, archived }
    }
}
