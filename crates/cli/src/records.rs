//! The journal's records as they are exported: those of a running gateway, or those in a directory.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::admin_call::AdminRequest;
use super::archive;
use super::asked::with_query;
use super::operator::AdminOptions;
use tollgate_ledger::{AccountId, ExportFormat, Exporter, OfflineRecords, Seq};

/// How long an export may be silent: a gateway that looks for one account's records reads a segment
/// (64 MiB) in less.
const SILENCE: Duration = Duration::from_secs(120);

/// Which records, in which form, and where they are.
pub(super) struct RecordSource<'a> {
    /// The data directory of a gateway that does not run; `None` for the gateway that runs.
    pub(super) data: Option<&'a Path>,
    /// How they are written.
    pub(super) format: ExportFormat,
    /// Only those of this account.
    pub(super) account: Option<AccountId>,
    /// The first of them.
    pub(super) from_seq: Option<Seq>,
    /// Which gateway is asked, and as whom.
    pub(super) operator: &'a AdminOptions,
}

impl RecordSource<'_> {
    /// Writes the records, oldest first.
    ///
    /// # Errors
    /// When they cannot be read, or what `out` says.
    pub(super) fn write(&self, out: &mut impl Write) -> anyhow::Result<()> {
        match self.data {
            Some(data) => self.write_offline(data, out),
            None => self.write_asked(out),
        }
    }

    fn write_offline(&self, data: &Path, out: &mut impl Write) -> anyhow::Result<()> {
        archive::connect(data, &self.operator.files)?;
        let from = self.from_seq.unwrap_or_default();
        let mut exporter = Exporter::new(self.format, self.account, from);
        let records = OfflineRecords::open(data, exporter.first())?;
        out.write_all(&exporter.head())?;
        for record in records {
            let (seq, record) = record?;
            out.write_all(&exporter.line(seq, &record))?;
        }
        Ok(())
    }

    fn write_asked(&self, out: &mut impl Write) -> anyhow::Result<()> {
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
