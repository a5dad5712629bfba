//! An export as it goes on: which records are written, and how.

use crate::reading::export::{ExportFormat, row};
use crate::reading::focus::Focus;
use crate::records::record::Record;
use tollgate_types::ids::{AccountId, Seq};

/// Writes records in one format, of one account or of all.
///
/// Between two records it keeps nothing but what rows of FOCUS need: open holds, and names.
#[derive(Debug)]
pub struct Exporter {
    format: ExportFormat,
    account: Option<AccountId>,
    from: Seq,
    focus: Focus,
}

impl Exporter {
    /// An export of the records from `from` on: of `account`, or of everybody.
    #[must_use]
    pub fn new(format: ExportFormat, account: Option<AccountId>, from: Seq) -> Self {
        Self { format, account, from, focus: Focus::default() }
    }

    /// The first record that it must be given. A row of FOCUS needs what stands before it.
    #[must_use]
    pub fn first(&self) -> Seq {
        if self.format == ExportFormat::Focus { 0 } else { self.from }
    }

    /// Bytes before the first record.
    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        match self.format {
            ExportFormat::Focus => row(Focus::head()),
            format => format.head(),
        }
    }

    /// The line of the record at `seq`; empty if it has none.
    #[must_use]
    pub fn line(&mut self, seq: Seq, record: &Record) -> Vec<u8> {
        if self.account.is_some_and(|account| record.account() != account) {
            return Vec::new();
        }
        if self.format != ExportFormat::Focus {
            return if seq < self.from { Vec::new() } else { self.format.line(seq, record) };
        }
        let cells = self.focus.cells(seq, record).filter(|_| seq >= self.from);
        cells.map(row).unwrap_or_default()
    }
}
