//! A log of records on disk that survives what happens to processes and disks.
//!
//! A **journal** is a directory of **segments**, files of some 64 MiB that are appended to one after the
//! other. What many threads record at the same time is written as one **frame** and flushed once: a group
//! commit. Each frame has a checksum and continues a **hash chain** over everything before it, so that a
//! reader notices whatever was changed, lost or exchanged, and can tell it from what a crash leaves of
//! an unfinished write, which nobody was told was on disk.
//!
//! The journal knows nothing of what it keeps: a [`Format`] says how a record becomes bytes.
//!
//! ```
//! use std::io;
//! use std::sync::Arc;
//! use tollgate_journal::committer::Committer;
//! use tollgate_journal::segment::Position;
//! use tollgate_journal::space::Space;
//! use tollgate_journal::{Format, Journal, Records, Urgency, Writer};
//!
//! /// Records are numbers.
//! struct Numbers;
//!
//! impl Format for Numbers {
//!     type Entry = u64;
//!     type Record = u64;
//!
//!     fn encode(entry: &u64, bytes: &mut Vec<u8>) -> io::Result<()> {
//!         bytes.extend_from_slice(&entry.to_le_bytes());
//!         Ok(())
//!     }
//!
//!     fn decode(bytes: &[u8]) -> Result<(u64, &[u8]), String> {
//!         let (number, rest) = bytes.split_first_chunk().ok_or("a number is cut")?;
//!         Ok((u64::from_le_bytes(*number), rest))
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let writer = Writer::<Numbers>::open(dir.path(), Position::default())?;
//! let journal = Arc::new(Journal::new(writer.position().seq));
//! let space = Space::new(dir.path().to_owned(), 1 << 20);
//! let committer = Committer::new(Arc::clone(&journal), writer, space, |_| {}, |event| {
//!     eprintln!("{event:?}");
//! });
//! let thread = std::thread::spawn(move || committer.run());
//!
//! let seq = journal.enqueue(Urgency::AtOnce, |_| 42)?;
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! // From here on it is read again, whatever happens.
//! journal.durable(seq).await
//! # })?;
//!
//! journal.stop();
//! thread.join().expect("the committer does not panic")?;
//! let records: Result<Vec<_>, _> = Records::<Numbers>::open(dir.path(), 0, None)?.collect();
//! assert_eq!(records?, [(1, 42)]);
//! # Ok(())
//! # }
//! ```
//!
//! | Module | What it is for |
//! |---|---|
//! | [`Journal`], [`committer`], [`space`] | recording: numbers, group commits, full disks |
//! | [`Writer`], [`segment`], [`frame`] | the files and their bytes |
//! | [`Reader`], [`Records`], [`stream`] | reading: all segments, records, one segment in little memory |
//! | [`seal`], [`sealing`] | what is noted of a closed segment, which may then be moved away |
//! | [`head`] | whose journal it is and how far it reached: finds copies and lost ends |
//! | [`salvage`] | reading on behind damage |
//! | [`ring`] | a log without a chain or a flush, of bounded size, for what may be lost |
//! | [`encode()`] | values as bytes, in the format of postcard |
//! | [`BatchQueue`] | bytes that wait for one thread that writes them |
//! | [`checked`] | small files with a checksum |
//!
//! What it does not do: it takes no lock on its directory, it decides nothing by a clock, it logs nothing
//! but what [`head`] finds, and it does not end the process. Its caller does, and is told when to: see
//! [`CommitError`](committer::CommitError) and [`Event`](committer::Event).

mod batch;
pub mod checked;
pub mod committer;
mod encode;
mod error;
mod event;
mod files;
mod format;
pub mod frame;
pub mod head;
mod journal;
mod reader;
mod records;
pub mod ring;
pub mod salvage;
mod schedule;
pub mod seal;
pub mod sealing;
pub mod segment;
pub mod space;
pub mod stream;
#[cfg(test)]
mod tests;
mod urgency;
mod waiters;
mod writer;

pub use self::batch::{BatchLimits, BatchQueue, GatherResult};
pub use self::encode::{EncodeError, encode};
pub use self::error::Error;
pub use self::files::sync_directory;
pub use self::format::{EmptyNote, Format};
pub use self::journal::{AtomicGroup, Journal, JournalStopped};
pub use self::reader::Reader;
pub use self::records::Records;
pub use self::urgency::Urgency;
pub use self::waiters::{DueWaiters, Waiters};
pub use self::writer::Writer;

/// The number of a record: one more than that of the record before.
pub type Seq = u64;

/// The directory of the journal in a data directory.
pub const JOURNAL_DIR: &str = "journal";
