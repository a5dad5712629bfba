//! `tollgate ledger`: what happened to an account's money, and a check of all of it.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};

use super::admin_call::AdminRequest;
use super::asked::{OutputOptions, Pages, with_query};
use super::exit::CODES;
use super::operator::AdminOptions;
use super::records::RecordSource;
use super::repair::RepairArgs;
use super::sheets::{ENTRIES, JOURNAL, LOSSES, MARGINS};
use super::terminal;
use super::trial_balance::TrialBalanceArgs;
use super::{accounts, archive};
use tollgate_ledger::{AccountId, Balance, ExportFormat, Report, Seq, SledReading, verify};
use tollgate_types::printable::escaped;

/// How long a gateway may take to check its journal: somewhat longer than it allows itself.
pub(super) const VERIFY_TIMEOUT: Duration = Duration::from_secs(11 * 60);
/// Bytes that are written together.
const BUFFER_BYTES: usize = 256 * 1024;

/// What happened to an account's money, and a check of all of it.
#[derive(Args, Debug)]
pub(super) struct LedgerArgs {
    #[command(subcommand)]
    command: LedgerCommand,
}

#[derive(Subcommand, Debug)]
enum LedgerCommand {
    /// List what happened to an account's money, newest first.
    #[command(after_help = format!("\
Examples:
  tollgate ledger entries acct_3f1c0a5b7d9e2468
  tollgate ledger entries acct_3f1c0a5b7d9e2468 --all --json | jq -c '.data[]'

{CODES}"))]
    Entries(EntriesArgs),
    /// List what calls may have cost that no customer pays, newest first.
    #[command(after_help = format!("\
Examples:
  tollgate ledger losses
  tollgate ledger losses --json | jq .totals

{CODES}"))]
    Losses(LossesArgs),
    /// List what calls brought in and what they cost, of targets that have a `cost`.
    #[command(after_help = format!("\
Examples:
  tollgate ledger margins --by model
  tollgate ledger margins --from 2026-01-01T00:00:00Z --by upstream --json | jq '.data[].margin'

{CODES}"))]
    Margins(MarginsArgs),
    /// Check every byte of the journal and every rule of money, and that sled says the same. Exits
    /// with 1 if anything is wrong.
    #[command(after_help = format!("\
Examples:
  tollgate ledger verify
  tollgate ledger verify --data /var/lib/tollgate

{CODES}"))]
    Verify(VerifyArgs),
    /// Print the books: every book account with its debit or credit, by double entry over the whole
    /// journal. Exits with 1 if they do not add up to zero, or say something else than the balances.
    #[command(after_help = format!("\
Examples:
  tollgate ledger trial-balance
  tollgate ledger trial-balance --data /var/lib/tollgate --json

{CODES}"))]
    TrialBalance(TrialBalanceArgs),
    /// Show what is wrong with the journal of a stopped gateway, what can be saved of it and what that
    /// costs whom; with `--apply`, put a journal in its place that starts. The damaged files are kept.
    #[command(after_help = format!("\
Examples:
  tollgate ledger repair --data /var/lib/tollgate
  tollgate ledger repair --data /var/lib/tollgate --apply

{CODES}"))]
    Repair(RepairArgs),
    /// Write all records of the journal for other programs, oldest first: those of a running
    /// gateway, or with `--data` those of a ledger that no gateway has open.
    #[command(after_help = format!("\
Examples:
  tollgate ledger export > ledger.jsonl
  tollgate ledger export --format csv --account acct_3f1c0a5b7d9e2468 --out ledger.csv
  tollgate ledger export --data /var/lib/tollgate --from-seq 1000
  tollgate ledger export --format focus --out focus.csv

{CODES}"))]
    Export(ExportArgs),
}

/// Whose entries to list.
#[derive(Args, Debug)]
struct EntriesArgs {
    /// The account's id.
    account: String,
    #[command(flatten)]
    pages: Pages,
    #[command(flatten)]
    asked: OutputOptions,
}

/// How many losses to list.
#[derive(Args, Debug)]
struct LossesArgs {
    /// The most that are listed, up to 500. Default: 100.
    #[arg(long, value_name = "COUNT")]
    limit: Option<u16>,
    #[command(flatten)]
    asked: OutputOptions,
}

/// Which margins, and by what they are added up.
#[derive(Args, Debug)]
struct MarginsArgs {
    /// From the day of this time. Default: 30 days ago.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Up to the day of this time. Default: today.
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// What they are added up by. Default: every day, account, model and upstream apart.
    #[arg(long, value_enum)]
    by: Option<MarginBy>,
    #[command(flatten)]
    asked: OutputOptions,
}

/// What margins are added up by.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum MarginBy {
    Day,
    Account,
    Model,
    Upstream,
}

impl MarginBy {
    fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Account => "account",
            Self::Model => "model",
            Self::Upstream => "upstream",
        }
    }
}

/// Which ledger to verify.
#[derive(Args, Debug)]
struct VerifyArgs {
    /// The data directory of a gateway that does not run. Default: ask the running gateway.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    asked: OutputOptions,
}

/// What to export, and how.
#[derive(Args, Debug)]
struct ExportArgs {
    /// One JSON object a line, one row of CSV, or in the columns of FOCUS 1.0 a row a charge.
    #[arg(long, value_enum, default_value_t = RecordFormat::Jsonl)]
    format: RecordFormat,
    /// Only the records of this account.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<AccountId>,
    /// The first record, by its place: one behind the last that is there already.
    #[arg(long, value_name = "SEQ")]
    from_seq: Option<Seq>,
    /// Write into this file, which is replaced once all is there. Default: standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The data directory of a gateway that does not run. Default: ask the running gateway.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    operator: AdminOptions,
}

/// How records are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RecordFormat {
    Jsonl,
    Csv,
    Focus,
}

impl LedgerArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// When the ledger cannot be read at all, or another process has it open.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            LedgerCommand::Entries(EntriesArgs { account, pages, asked }) => {
                let path = format!("{}/entries", accounts::path(&account));
                asked.list(&path, &[], &pages, &ENTRIES)
            }
            LedgerCommand::Losses(LossesArgs { limit, asked }) => {
                let limit = limit.map(|limit| limit.to_string());
                let path = with_query("/admin/v1/ledger/losses", &[("limit", limit.as_deref())]);
                asked.show(&AdminRequest::get(path), &LOSSES)
            }
            LedgerCommand::Margins(MarginsArgs { from, to, by, asked }) => {
                let query = [
                    ("from", from.as_deref()),
                    ("to", to.as_deref()),
                    ("by", by.map(MarginBy::word)),
                ];
                let path = with_query("/admin/v1/margins", &query);
                asked.show(&AdminRequest::get(path), &MARGINS)
            }
            LedgerCommand::Verify(args) => args.run(),
            LedgerCommand::TrialBalance(args) => args.run(),
            LedgerCommand::Repair(args) => args.run(),
            LedgerCommand::Export(args) => args.run(),
        }
    }
}

impl VerifyArgs {
    fn run(self) -> anyhow::Result<ExitCode> {
        let Some(data) = &self.data else { return self.ask() };
        archive::connect(data, &self.asked.operator.files)?;
        let report = verify(data)?;
        let mut out = terminal::out();
        if self.asked.quiet {
            writeln!(out, "{}", report.chain)?;
        } else if self.asked.json {
            serde_json::to_writer(&mut out, &report)?;
            writeln!(out)?;
        } else {
            print(&mut out, &report)?;
        }
        let is_sound = report.violations.is_empty();
        Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Has the running gateway check its journal, and sled.
    fn ask(&self) -> anyhow::Result<ExitCode> {
        let ask = AdminRequest::post("/admin/v1/ledger/verify").within(VERIFY_TIMEOUT);
        let document = self.asked.operator.ask(&ask)?;
        self.asked.print(&document, &JOURNAL)?;
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
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let cannot = |path: &Path| format!("cannot write {}", path.display());
        let file = File::create(&partial).with_context(|| cannot(&partial))?;
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
        self.write(&mut out)?;
        let file = out.into_inner().map_err(std::io::IntoInnerError::into_error);
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

fn print(out: &mut impl std::io::Write, report: &Report) -> std::io::Result<()> {
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
