//! Interface between the journal and its records.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Seq;

/// Interface between the journal and its records: their encoding and numbering, and the location of
/// archived segments.
///
/// The bytes of a group's records stand one after the other without anything between, so that a record
/// must say itself where it ends. No record may have 512 zero bytes in a row: by such a gap a reader
/// recognises a sector that never reached the disk.
pub trait Format {
    /// A record for writing, with data for those who see it written.
    type Entry;
    /// A record as read.
    type Record;

    /// Appends the bytes of a record.
    ///
    /// # Errors
    /// When it has no such form; nothing of its group is written then.
    fn encode(entry: &Self::Entry, bytes: &mut Vec<u8>) -> io::Result<()>;

    /// Reads the record that `bytes` begin with; gives it and the bytes behind it.
    ///
    /// # Errors
    /// What is wrong with the bytes, for people: the frame is damaged then.
    fn decode(bytes: &[u8]) -> Result<(Self::Record, &[u8]), String>;

    /// The number before the first record of the journal that has the record `seq`. Journals of several
    /// writers can so be told apart by their numbers.
    #[must_use]
    fn origin(seq: Seq) -> Seq {
        let _ = seq;
        0
    }

    /// Opens the content of a segment that was moved away. `journal` is the journal's directory, if the
    /// reader is likely to come back for the same segment: what had to be fetched may be kept there.
    ///
    /// # Errors
    /// When it is not there or cannot be reached.
    fn open_archived(
        archived: &ArchivedSegment,
        journal: Option<&Path>,
    ) -> io::Result<Box<dyn Read>> {
        let _ = journal;
        Ok(Box::new(File::open(&archived.path)?))
    }
}

/// The empty addition to a [`Seal`](crate::seal::Seal) or a [`JournalHead`](crate::head::JournalHead).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmptyNote {}

/// A segment that was moved out of the journal's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedSegment {
    /// The compressed file, or `s3://bucket/key`.
    pub path: PathBuf,
    /// The length of the file, in bytes.
    pub bytes: u64,
    /// Time of the move, in milliseconds since 1970.
    #[serde(rename = "at")]
    pub at_ms: u64,
}
