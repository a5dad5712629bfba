//! The journal's records one after the other, for those who read all of it.

use std::path::Path;

use super::segment::{self, Reader};
use crate::ledger::Seq;
use crate::ledger::error::OpenError;
use crate::ledger::record::Record;

/// The records of a journal from one place to another. At most one segment (64 MiB) is in memory.
///
/// A running gateway may append meanwhile: what stands up to a record that was on disk before this
/// was opened does not change any more.
pub struct Records {
    reader: Reader,
    /// The first that is wanted.
    from: Seq,
    /// The last that is wanted; `None` for the journal's end.
    to: Option<Seq>,
    frame: Vec<Record>,
    /// The place of the record that is next in `frame`, which is in reverse.
    next_seq: Seq,
    is_over: bool,
}

impl Records {
    /// The records of the journal in `dir`, the ledger's directory, from `from` up to `to`, or up to
    /// its end. `to` must be on disk. The segment that has `from` is read from its beginning.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn open(dir: &Path, from: Seq, to: Option<Seq>) -> Result<Self, OpenError> {
        let journal_dir = dir.join("journal");
        let begin = segment::before(&journal_dir, from)?;
        let reader = Reader::open(&journal_dir, begin)?;
        Ok(Self { reader, from, to, frame: Vec::new(), next_seq: 0, is_over: false })
    }

    fn next_frame(&mut self) -> Result<bool, OpenError> {
        if self.to.is_some_and(|to| self.reader.position().seq >= to) {
            return Ok(false);
        }
        let Some(frame) = self.reader.next()? else { return Ok(false) };
        self.next_seq = frame.first_seq;
        self.frame = frame.records;
        self.frame.reverse();
        Ok(true)
    }
}

impl Iterator for Records {
    type Item = Result<(Seq, Record), OpenError>;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Ledger, Options};

    #[tokio::test]
    async fn a_part_of_a_journal_is_read_while_it_grows() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ledger, _) = Ledger::open(Options::new(dir.path())).expect("the ledger opens");
        let account = ledger.create_account("a").await.expect("an account").id;
        for number in 0..5 {
            let id = number.to_string();
            ledger.grant(account, &id, crate::money::Nanousd::new(1)).await.expect("a grant");
        }
        let places = |from, to| -> Vec<Seq> {
            let records = Records::open(dir.path(), from, to).expect("a journal");
            records.map(|record| record.expect("a record").0).collect()
        };
        let whole = places(0, None);
        let last = whole.len() as Seq;
        assert_eq!(whole, (1..=last).collect::<Vec<_>>());
        assert_eq!(places(0, Some(6)), [1, 2, 3, 4, 5, 6]);
        assert_eq!(places(3, Some(4)), [3, 4]);
        assert_eq!(places(last, None), [last]);
        assert_eq!(places(last + 1, None), [0; 0]);
        ledger.close();
    }
}
