//! `tollgate ledger repair`: repair of a damaged journal.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::archive;
use super::files::Files;
use super::terminal::{self, one_line};
use tollgate_ledger::{Repair, repair};
use tollgate_types::printable::escaped;

/// Largest number of places listed individually.
const LISTED_MAX: usize = 20;

/// Arguments of `tollgate ledger repair`.
#[derive(Args, Debug)]
pub(super) struct RepairArgs {
    /// Data directory of a stopped gateway.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Replace the damaged journal. Without this nothing is changed.
    #[arg(long)]
    apply: bool,
    /// Do not recover lost records from sled.
    #[arg(long)]
    without_sled: bool,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: Files,
}

impl RepairArgs {
    /// Run the command: exits with 0 if nothing is damaged or everything possible is repaired.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        archive::connect(&self.data, &self.files)?;
        let found = repair(&self.data, self.apply, self.without_sled)?;
        let mut out = terminal::out();
        if self.json {
            serde_json::to_writer(&mut out, &found)?;
            writeln!(out)?;
        } else {
            self.print(&mut out, &found)?;
        }
        // A survey of a damaged journal is a failure, so that scripts notice the damage.
        let is_done = found.is_sound || self.apply;
        Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn print(&self, out: &mut impl Write, found: &Repair) -> std::io::Result<()> {
        writeln!(out, "{} records can be read", found.records)?;
        if found.torn_bytes > 0 {
            let bytes = found.torn_bytes;
            writeln!(
                out,
                "{bytes} bytes of an unfinished write at the end; every start cuts them"
            )?;
        }
        if found.is_sound {
            return writeln!(out, "the journal needs no repair");
        }
        writeln!(out, "nothing is wrong up to record {}", found.whole_until)?;
        // A damaged disk may have thousands of places; the counts tell the rest.
        for damage in found.damages.iter().take(LISTED_MAX) {
            let (file, from, to) = (damage.file.display(), damage.from, damage.to);
            writeln!(out, "{file}: bytes {from} to {to}: {}", escaped(&damage.what))?;
        }
        more(out, found.damages.len())?;
        if found.behind > 0 {
            writeln!(
                out,
                "{} records stand behind that; the hash chain proves {} of them",
                found.behind, found.behind_proven
            )?;
        }
        for (from, to) in found.lost.iter().take(LISTED_MAX) {
            writeln!(out, "records {from} to {to} are lost")?;
        }
        more(out, found.lost.len())?;
        writeln!(out, "sled: {}", found.sled)?;
        writeln!(
            out,
            "{} of the lost records are put back from sled; of {} nothing is known; {} others cannot \
             stand without those",
            found.restored, found.unrecoverable, found.dropped
        )?;
        for why in found.dropped_why.iter().take(LISTED_MAX) {
            writeln!(out, "  {}", escaped(why))?;
        }
        more(out, found.dropped_why.len())?;
        self.print_costs(out, found)
    }

    fn print_costs(&self, out: &mut impl Write, found: &Repair) -> std::io::Result<()> {
        if found.accounts.is_empty() {
            writeln!(out, "no account is known to gain or lose by it")?;
        }
        for cost in &found.accounts {
            let (account, name, now) = (&cost.account, one_line(&cost.name), &cost.repaired);
            write!(out, "{account} ({name}): available {}, spent {}", now.available, now.spent)?;
            if let Some(was) = &cost.sled {
                write!(out, "; sled says {} and {}", was.available, was.spent)?;
            }
            writeln!(
                out,
                "; charges of {} are dropped, credit of {}",
                cost.charges_dropped, cost.credits_dropped
            )?;
        }
        match (&found.kept_in, self.apply) {
            (Some(kept), _) => writeln!(
                out,
                "the journal was replaced; the damaged one is kept in {}. Start the gateway, compare \
                 the accounts above, and give back what is missing",
                kept.display()
            ),
            (None, true) => writeln!(out, "sled was put aside; the next start builds it again"),
            (None, false) => writeln!(
                out,
                "nothing was changed. A backup that has these records is better; if there is none, \
                 repeat this with --apply"
            ),
        }
    }
}

fn more(out: &mut impl Write, count: usize) -> std::io::Result<()> {
    match count.checked_sub(LISTED_MAX) {
        None | Some(0) => Ok(()),
        Some(more) => writeln!(out, "and {more} more"),
    }
}
