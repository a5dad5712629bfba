//! The journal's records one after the other, for those who read all of it.

use std::path::Path;

use tollgate_journal::JOURNAL_DIR;

use super::LedgerFormat;
use crate::records::error::OpenError;
use crate::records::record::Record;
use tollgate_types::ids::Seq;

/// The records of a ledger's journal from one place to another. At most one segment (64 MiB) is in
/// memory.
///
/// A running gateway may append meanwhile: what stands up to a record that was on disk before this
/// was opened does not change any more.
pub struct Records(tollgate_journal::Records<LedgerFormat>);

impl Records {
    /// The records of the journal in `dir`, the ledger's directory, from `from` up to `to`, or up to
    /// its end. `to` must be on disk. The segment that has `from` is read from its beginning.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn open(dir: &Path, from: Seq, to: Option<Seq>) -> Result<Self, OpenError> {
        Ok(Self(tollgate_journal::Records::open(&dir.join(JOURNAL_DIR), from, to)?))
    }
}

impl Iterator for Records {
    type Item = Result<(Seq, Record), OpenError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map_err(OpenError::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ledger, Options};

    #[tokio::test]
    async fn a_part_of_a_journal_is_read_while_it_grows() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ledger, _) = Ledger::open(Options::new(dir.path())).expect("the ledger opens");
        let account = ledger.create_account("a").await.expect("an account").id;
        for number in 0..5 {
            let id = number.to_string();
            ledger
                .grant(account, &id, tollgate_money::money::Nanousd::new(1))
                .await
                .expect("a grant");
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
