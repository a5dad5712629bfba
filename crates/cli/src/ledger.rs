//! `tollgate ledger`: list, verify and export ledger entries.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};

use super::admin_call::{AdminRequest, VERIFY_TIMEOUT};
use super::exit::CODES;
use super::operator::AdminOptions;
use super::output::{OutputOptions, PageOptions, with_query};
use super::records::RecordSource;
use super::repair::RepairArgs;
use super::sheets::{ENTRIES, JOURNAL, LOSSES, MARGINS};
use super::terminal;
use super::trial_balance::TrialBalanceArgs;
use super::{accounts, archive};
use tollgate_ledger::{
    AccountId, Balance, ExportFormat, Seq, SledReading, VerificationReport, verify,
};
use tollgate_types::printable::escaped;

/// Write buffer, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// List, verify, export and repair the ledger.
#[derive(Debug, Subcommand)]
pub(super) enum LedgerCommand {
    /// List an account's ledger entries, newest first.
    #[command(after_help = format!("\
Examples:
  tollgate ledger entries acct_3f1c0a5b7d9e2468
  tollgate ledger entries acct_3f1c0a5b7d9e2468 --all --json | jq -c '.data[]'

{CODES}"))]
    Entries {
        /// Id of the account.
        account: String,
        #[command(flatten)]
        pages: PageOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// List losses, newest first: upstream costs that no customer pays.
    #[command(after_help = format!("\
Examples:
  tollgate ledger losses
  tollgate ledger losses --json | jq .totals

{CODES}"))]
    Losses {
        /// Largest number of items, up to 500. Default: 100.
        #[arg(long, value_name = "COUNT")]
        limit: Option<u16>,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// List revenue, costs and margins of targets that have a `cost`.
    #[command(after_help = format!("\
Examples:
  tollgate ledger margins --by model
  tollgate ledger margins --from 2026-01-01T00:00:00Z --by upstream --json | jq '.data[].margin'

{CODES}"))]
    Margins {
        /// First day. Default: 30 days ago.
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// Last day. Default: today.
        #[arg(long, value_name = "TIME")]
        to: Option<String>,
        /// Grouping. Default: by day, account, model and upstream.
        #[arg(long, value_enum)]
        by: Option<MarginByChoice>,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Verify the whole journal, all accounting rules, and the sled projection. Exits with 1 on any
    /// error.
    #[command(after_help = format!("\
Examples:
  tollgate ledger verify
  tollgate ledger verify --data /var/lib/tollgate

{CODES}"))]
    Verify(VerifyArgs),
    /// Print the trial balance: every book account with its debit or credit, by double entry over the
    /// whole journal. Exits with 1 if it does not sum to zero or contradicts the balances.
    #[command(after_help = format!("\
Examples:
  tollgate ledger trial-balance
  tollgate ledger trial-balance --data /var/lib/tollgate --json

{CODES}"))]
    TrialBalance(TrialBalanceArgs),
    /// Diagnose the damaged journal of a stopped gateway: what can be recovered, and who loses what.
    /// With `--apply`, replace it by a repaired one and keep the damaged files.
    #[command(after_help = format!("\
Examples:
  tollgate ledger repair --data /var/lib/tollgate
  tollgate ledger repair --data /var/lib/tollgate --apply

{CODES}"))]
    Repair(RepairArgs),
    /// Export all journal records, oldest first: from a running gateway, or with `--data` from a ledger
    /// that no gateway has open.
    #[command(after_help = format!("\
Examples:
  tollgate ledger export > ledger.jsonl
  tollgate ledger export --format csv --account acct_3f1c0a5b7d9e2468 --out ledger.csv
  tollgate ledger export --data /var/lib/tollgate --from-seq 1000
  tollgate ledger export --format focus --out focus.csv

{CODES}"))]
    Export(ExportArgs),
}

/// Key by which margins are grouped.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum MarginByChoice {
    Day,
    Account,
    Model,
    Upstream,
}

impl MarginByChoice {
    fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Account => "account",
            Self::Model => "model",
            Self::Upstream => "upstream",
        }
    }
}

/// Arguments of `tollgate ledger verify`.
#[derive(Args, Debug)]
pub(super) struct VerifyArgs {
    /// Data directory of a stopped gateway. Default: use the running gateway.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    output: OutputOptions,
}

/// Arguments of `tollgate ledger export`.
#[derive(Args, Debug)]
pub(super) struct ExportArgs {
    /// Format: JSON lines, CSV, or charges in the columns of FOCUS 1.0.
    #[arg(long, value_enum, default_value_t = RecordFormat::Jsonl)]
    format: RecordFormat,
    /// Only records of this account.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<AccountId>,
    /// First record, by sequence number: one after the last existing one.
    #[arg(long, value_name = "SEQ")]
    from_seq: Option<Seq>,
    /// Output file, replaced atomically when complete. Default: standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Data directory of a stopped gateway. Default: use the running gateway.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    operator: AdminOptions,
}

/// Format of exported records.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RecordFormat {
    Jsonl,
    Csv,
    Focus,
}

impl LedgerCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Entries { account, pages, output } => {
                let path = format!("{}/entries", accounts::path(&account));
                output.list(&path, &[], &pages, &ENTRIES)
            }
            Self::Losses { limit, output } => {
                let limit = limit.map(|limit| limit.to_string());
                let path = with_query("/admin/v1/ledger/losses", &[("limit", limit.as_deref())]);
                output.show(&AdminRequest::get(path), &LOSSES)
            }
            Self::Margins { from, to, by, output } => {
                let query = [
                    ("from", from.as_deref()),
                    ("to", to.as_deref()),
                    ("by", by.map(MarginByChoice::word)),
                ];
                let path = with_query("/admin/v1/margins", &query);
                output.show(&AdminRequest::get(path), &MARGINS)
            }
            Self::Verify(args) => args.run(),
            Self::TrialBalance(args) => args.run(),
            Self::Repair(args) => args.run(),
            Self::Export(args) => args.run(),
        }
    }
}

impl VerifyArgs {
    fn run(self) -> anyhow::Result<ExitCode> {
        // A directory in use is locked by its gateway, so the gateway checks it itself.
        let Some(data) = &self.data else { return self.ask() };
        archive::connect(data, &self.output.operator.files)?;
        let report = verify(data)?;
        let mut out = terminal::out();
        if self.output.quiet {
            writeln!(out, "{}", report.chain)?;
        } else if self.output.json {
            serde_json::to_writer(&mut out, &report)?;
            writeln!(out)?;
        } else {
            print(&mut out, &report)?;
        }
        let is_sound = report.violations.is_empty();
        Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Verify through the running gateway.
    fn ask(&self) -> anyhow::Result<ExitCode> {
        let ask = AdminRequest::post("/admin/v1/ledger/verify").within(VERIFY_TIMEOUT);
        let document = self.output.operator.ask(&ask)?;
        self.output.print(&document, &JOURNAL)?;
        let is_sound = document.value["ok"] == true;
        Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl ExportArgs {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let Some(path) = &self.out else {
            let out = terminal::data();
            self.write(&mut BufWriter::with_capacity(BUFFER_BYTES, out))?;
            return Ok(ExitCode::SUCCESS);
        };
        let mut partial = path.clone().into_os_string();
        // Written beside its name and renamed at the end: an interrupted export leaves no file that looks
        // whole.
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let cannot = |path: &Path| format!("cannot write {}", path.display());
        let file = File::create(&partial).with_context(|| cannot(&partial))?;
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
        self.write(&mut out)?;
        let file = out.into_inner().map_err(std::io::IntoInnerError::into_error);
        // Before the rename: a crash must not leave the name with an empty file.
        file.and_then(|file| file.sync_all()).with_context(|| cannot(&partial))?;
        std::fs::rename(&partial, path).with_context(|| cannot(path))?;
        Ok(ExitCode::SUCCESS)
    }

    fn write(&self, out: &mut impl std::io::Write) -> anyhow::Result<()> {
        let source = RecordSource {
            data: self.data.as_deref(),
            format: match self.format {
                RecordFormat::Jsonl => ExportFormat::Jsonl,
                RecordFormat::Csv => ExportFormat::Csv,
                RecordFormat::Focus => ExportFormat::Focus,
            },
            account: self.account,
            from_seq: self.from_seq,
            operator: &self.operator,
        };
        source.write(out)?;
        out.flush()?;
        Ok(())
    }
}

fn print(out: &mut impl std::io::Write, report: &VerificationReport) -> std::io::Result<()> {
    writeln!(
        out,
        "{} records in {} commits and {} segments",
        report.records, report.frames, report.segments
    )?;
    if report.torn_bytes > 0 {
        writeln!(
            out,
            "{} bytes of an unfinished write at the end; the next start cuts them",
            report.torn_bytes
        )?;
    }
    writeln!(out, "hash chain  {}", report.chain)?;
    writeln!(out, "state       {}", report.state_hash)?;
    writeln!(out, "sled        {}", report.sled_hash.as_deref().unwrap_or("not compared"))?;
    let SledReading { rows, bytes, duration_ms, reason, .. } = &report.sled;
    match reason {
        Some(reason) => writeln!(out, "            {reason}")?,
        None => {
            writeln!(out, "            {rows} rows of {bytes} bytes, read in {duration_ms} ms")?
        }
    }
    writeln!(
        out,
        "\n{:<24} {:>18} {:>18} {:>18} {:>18} {:>18} {:>18}",
        "account", "granted", "available", "held", "spent", "debt", "credit line"
    )?;
    for account in &report.accounts {
        print_balance(out, &account.id.to_string(), &account.balance)?;
    }
    print_balance(out, "total", &report.total)?;
    writeln!(out, "\nwritten off {}, open holds {}", report.written_off, report.open_holds)?;
    for (cause, sum) in &report.losses {
        let cause = terminal::one_line(cause);
        writeln!(out, "lost at the most {} in {} calls: {cause}", sum.amount, sum.count)?;
    }
    let sum = if report.books.adds_up { "add up to zero" } else { "do NOT add up" };
    writeln!(out, "books {sum}: debit {}, credit {}", report.books.debit, report.books.credit)?;
    for violation in &report.violations {
        writeln!(out, "violation: {}", escaped(violation))?;
    }
    let verdict = if report.violations.is_empty() { "sound" } else { "NOT sound" };
    writeln!(out, "the ledger is {verdict}")
}

fn print_balance(
    out: &mut impl std::io::Write,
    name: &str,
    balance: &Balance,
) -> std::io::Result<()> {
    let Balance { available, held, spent, debt, credit, .. } = *balance;
    // `Nanousd` ignores a width, so its text is what is aligned.
    let [granted, available, held, spent, debt, credit] =
        [balance.paid_in(), available, held, spent, debt, credit].map(|amount| amount.to_string());
    writeln!(
        out,
        "{name:<24} {granted:>18} {available:>18} {held:>18} {spent:>18} {debt:>18} {credit:>18}"
    )
}
