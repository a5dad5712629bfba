//! `tollgate backup` and `tollgate restore`.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use super::files::Files;
use super::terminal;
use super::{archive, private};
use tollgate_ledger::{self as ledger, CopySummary};
use tollgate_types::clock::UnixMs;

/// Back up the data directory of a gateway, which may be running. An existing backup is updated.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate backup --data /var/lib/tollgate --to /mnt/backup/tollgate
  tollgate ledger verify --data /mnt/backup/tollgate

Exit codes: 0 success, 1 failure, 2 usage error.")]
pub(super) struct Backup {
    /// Data directory of the ledger.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Destination of the backup.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Restore a data directory from a backup, optionally to a point in time, and list what it leaves out.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate restore --from /mnt/backup/tollgate --data /var/lib/tollgate
  tollgate restore --from /var/lib/tollgate.damaged --data /var/lib/tollgate --at 2026-11-22T03:00:00Z

Exit codes: 0 success, 1 failure, 2 usage error.")]
pub(super) struct Restore {
    /// The backup, or a data directory that no gateway will use any more.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Data directory to create: must not exist, or be empty.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Restore to this time, such as 2026-11-22T03:00:00Z. Default: everything.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    at: Option<UnixMs>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: Files,
}

fn moment(text: &str) -> Result<UnixMs, String> {
    UnixMs::parse_rfc3339(text).ok_or_else(|| "write it as in 2026-11-22T03:00:00Z".to_owned())
}

impl Backup {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        private::only_for_owner();
        let copied = ledger::backup(&self.data, &self.to)
            .with_context(|| format!("cannot back up {}", self.data.display()))?;
        print(&copied, self.json, |out, copied| {
            writeln!(out, "{} holds the records 1 to {}", self.to.display(), copied.last_seq)
        })
    }
}

impl Restore {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        private::only_for_owner();
        archive::connect(&self.from, &self.files)?;
        let copied = ledger::restore(&self.from, &self.data, self.at)
            .with_context(|| format!("cannot restore {}", self.from.display()))?;
        print(&copied, self.json, |out, copied| {
            writeln!(out, "{} holds the records 1 to {}", self.data.display(), copied.last_seq)?;
            print_left_out(out, copied)?;
            writeln!(
                out,
                "It goes on under a name of its own: never start a gateway on {} again.",
                self.from.display()
            )
        })
    }
}

fn print(
    copied: &CopySummary,
    is_json: bool,
    say: impl FnOnce(&mut terminal::CommandOutput, &CopySummary) -> io::Result<()>,
) -> anyhow::Result<ExitCode> {
    let mut out = terminal::out();
    if is_json {
        serde_json::to_writer(&mut out, copied)?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    say(&mut out, copied)?;
    if let Some(at) = copied.last_at {
        writeln!(out, "last record  {}", at.to_rfc3339())?;
    }
    writeln!(out, "hash chain   {}", copied.chain)?;
    writeln!(out, "copied       {} bytes", copied.bytes)?;
    if copied.archived > 0 {
        let count = copied.archived;
        writeln!(out, "{count} files of the journal are in the archive, and were not copied")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_left_out(out: &mut impl io::Write, copied: &CopySummary) -> io::Result<()> {
    let left = &copied.left_out;
    if left.unreadable {
        writeln!(
            out,
            "There was more, which is missing or cannot be read, and is left out as well."
        )?;
    }
    if left.records == 0 {
        // Nothing may be said of what could not be read.
        let all = "Nothing of it was left out.";
        return if left.unreadable { Ok(()) } else { writeln!(out, "{all}") };
    }
    writeln!(out, "Left out, and to be made good by hand: {} records", left.records)?;
    writeln!(out, "  calls     {:>10}  charged {}", left.calls, left.charged)?;
    writeln!(out, "  grants    {:>10}  of {}", left.grants, left.granted)?;
    writeln!(out, "  refunds   {:>10}  of {}", left.refunds, left.refunded)?;
    writeln!(out, "  accounts  {:>10}  opened", left.accounts)?;
    writeln!(out, "  keys      {:>10}  made, changed or revoked", left.keys)?;
    writeln!(
        out,
        "  tasks     {:>10}  changes; upstreams go on with what was submitted",
        left.tasks
    )
}
