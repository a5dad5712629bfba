//! Export of journal records, from a running gateway or from a directory.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::admin_call::AdminRequest;
use super::archive;
use super::operator::AdminOptions;
use super::output::with_query;
use tollgate_ledger::{AccountId, ExportFormat, Exporter, OfflineRecords, Seq};

/// Longest silence of an export: a gateway that filters one account's records reads a segment (64 MiB)
/// in less.
const SILENCE: Duration = Duration::from_secs(120);

/// Selection, format and source of records.
pub(super) struct RecordSource<'a> {
    /// Data directory of a stopped gateway; `None` for the running gateway.
    pub(super) data: Option<&'a Path>,
    /// Format of the exported records.
    pub(super) format: ExportFormat,
    /// Only records of this account.
    pub(super) account: Option<AccountId>,
    /// Sequence number of the first record.
    pub(super) from_seq: Option<Seq>,
    /// Gateway address and credentials.
    pub(super) operator: &'a AdminOptions,
}

impl RecordSource<'_> {
    /// Write the records, oldest first.
    ///
    /// # Errors
    /// The records cannot be read, or an error of `out`.
    pub(super) fn write(&self, out: &mut impl Write) -> anyhow::Result<()> {
        match self.data {
            Some(data) => self.write_offline(data, out),
            None => self.write_from_gateway(out),
        }
    }

    fn write_offline(&self, data: &Path, out: &mut impl Write) -> anyhow::Result<()> {
        archive::connect(data, &self.operator.files)?;
        let from = self.from_seq.unwrap_or_default();
        let mut exporter = Exporter::new(self.format, self.account, from);
        // Opened before the head is written: a locked or damaged directory leaves no output.
        let records = OfflineRecords::open(data, exporter.first())?;
        out.write_all(&exporter.head())?;
        for record in records {
            let (seq, record) = record?;
            out.write_all(&exporter.line(seq, &record))?;
        }
        Ok(())
    }

    fn write_from_gateway(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let format = match self.format {
            ExportFormat::Jsonl => "jsonl",
            ExportFormat::Csv => "csv",
            ExportFormat::Focus => "focus",
        };
        let account = self.account.map(|account| account.to_string());
        let from_seq = self.from_seq.map(|seq| seq.to_string());
        let query = [
            ("format", Some(format)),
            ("account", account.as_deref()),
            ("from_seq", from_seq.as_deref()),
        ];
        let ask = AdminRequest::get(with_query("/admin/v1/ledger/export", &query));
        self.operator.stream(&ask, SILENCE, &mut |piece| out.write_all(piece))
    }
}
