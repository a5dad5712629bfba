//! `tollgate ledger`: what happened to an account's money, and a check of all of it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::accounts;
use super::asked::{Asked, Pages};
use super::exit::CODES;
use super::sheets::ENTRIES;
use crate::ledger::{Balance, Report, verify};

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
    Entries(Entries),
    /// Check every byte of the journal, every rule of money, and that sled says the same. Exits
    /// with 1 if anything is wrong.
    Verify(VerifyArgs),
}

/// Whose entries.
#[derive(Args, Debug)]
struct Entries {
    /// The account's id.
    account: String,
    #[command(flatten)]
    pages: Pages,
    #[command(flatten)]
    asked: Asked,
}

/// What to verify.
#[derive(Args, Debug)]
struct VerifyArgs {
    /// The data directory.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

impl LedgerArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// When the ledger cannot be read at all, or another process has it open.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            LedgerCommand::Entries(Entries { account, pages, asked }) => {
                let path = format!("{}/entries", accounts::path(&account));
                asked.list(&path, &[], &pages, &ENTRIES)
            }
            LedgerCommand::Verify(args) => args.run(),
        }
    }
}

impl VerifyArgs {
    fn run(self) -> anyhow::Result<ExitCode> {
        let args = self;
        let report = verify(&args.data)?;
        let mut out = std::io::stdout().lock();
        if args.json {
            serde_json::to_writer_pretty(&mut out, &report)?;
            writeln!(out)?;
        } else {
            print(&mut out, &report)?;
        }
        let is_sound = report.violations.is_empty();
        Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
    writeln!(
        out,
        "\n{:<24} {:>18} {:>18} {:>18} {:>18}",
        "account", "granted", "available", "held", "spent"
    )?;
    for account in &report.accounts {
        print_balance(out, &account.id.to_string(), &account.balance)?;
    }
    print_balance(out, "total", &report.total)?;
    writeln!(out, "\nwritten off {}, open holds {}", report.written_off, report.open_holds)?;
    for violation in &report.violations {
        writeln!(out, "violation: {violation}")?;
    }
    let verdict = if report.violations.is_empty() { "sound" } else { "NOT sound" };
    writeln!(out, "the ledger is {verdict}")
}

fn print_balance(
    out: &mut impl std::io::Write,
    name: &str,
    balance: &Balance,
) -> std::io::Result<()> {
    let Balance { granted, available, held, spent } = balance;
    // `Nanousd` ignores a width, so its text is what is aligned.
    let [granted, available, held, spent] =
        [granted, available, held, spent].map(ToString::to_string);
    writeln!(out, "{name:<24} {granted:>18} {available:>18} {held:>18} {spent:>18}")
}
