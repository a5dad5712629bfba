//! `tollgate migrate ledger`: move a single gateway's ledger into a fleet, and back.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::super::terminal::{errln, outln};
use super::database;
use crate::archive;
use crate::exit::{CODES, Failure, REFUSED};
use crate::files::{self, Files};
use crate::sheet::{Sheet, ValueFormat};
use tollgate_fleet::moving::{self, MoveError, MoveReport};
use tollgate_fleet::postgres::Db;
use tollgate_ledger::{Ledger, Options, RecoveryPolicy};

/// Table of counted objects, by account and in total.
const COUNTED: Sheet = Sheet::list(
    "/account",
    &[
        ("account", "/account", ValueFormat::Text),
        ("granted", "/granted", ValueFormat::Figure),
        ("available", "/available", ValueFormat::Figure),
        ("held", "/held", ValueFormat::Figure),
        ("spent", "/spent", ValueFormat::Figure),
        ("debt", "/debt", ValueFormat::Figure),
        ("credit line", "/credit", ValueFormat::Figure),
        ("written off", "/written_off", ValueFormat::Figure),
        ("keys", "/keys", ValueFormat::Figure),
        ("tasks", "/tasks", ValueFormat::Figure),
        ("lines", "/lines", ValueFormat::Figure),
        ("calls", "/calls", ValueFormat::Figure),
    ],
);

/// Move the ledger of a single gateway into the database of `store.postgres`, or back. Either the counts
/// agree on both sides, or nothing is moved; an interrupted move is resumed by running the command
/// again.
#[derive(Args, Debug)]
#[command(after_help = format!("\
Examples:
  tollgate migrate ledger --to postgres --data /var/lib/tollgate --dry-run
  tollgate migrate ledger --to postgres --data /var/lib/tollgate
  tollgate migrate ledger --from postgres --data /var/lib/tollgate-alone

{CODES} Here 4 is a ledger or a fleet that cannot move as it is, and 5 a database that does not \
answer."))]
pub(crate) struct MoveLedger {
    #[command(flatten)]
    way: MoveDirection,
    /// Data directory: of the stopped gateway that moves in, or an empty one for the new ledger. Default
    /// for `--to`: `store.data_dir`.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// With `--to`: count what would move and list obstacles, without changing anything.
    #[arg(long)]
    dry_run: bool,
    /// With `--to`: first resolve holds that a crash left open, as a start does.
    #[arg(long, value_enum, value_name = "POLICY")]
    recovery: Option<RecoveryChoice>,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: Files,
}

/// Direction of the move.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct MoveDirection {
    /// Move into the fleet.
    #[arg(long, value_enum, value_name = "STORE")]
    to: Option<MoveEndpoint>,
    /// Move out of the fleet. All its nodes must be stopped.
    #[arg(long, value_enum, value_name = "STORE")]
    from: Option<MoveEndpoint>,
}

/// Other side of the move.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum MoveEndpoint {
    Postgres,
}

/// Resolution of holds that a crash left open.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RecoveryChoice {
    /// The customer pays nothing.
    Void,
    /// The customer pays the minimum that the call must have cost.
    Floor,
}

impl MoveLedger {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let is_inward = self.way.to.is_some();
        if !is_inward && (self.data.is_none() || self.dry_run || self.recovery.is_some()) {
            let help = "`--from` takes --data, and neither --dry-run nor --recovery";
            return Err(refused("the way back needs an empty directory", help));
        }
        let options = database::options(&self.files)?;
        let dir = self.data_dir()?;
        if is_inward {
            archive::connect(&dir, &self.files)?;
        }
        // Not in a dry run: resolving open holds charges or releases money.
        if let (Some(recovery), false) = (self.recovery, self.dry_run) {
            recover(&dir, recovery)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let moved = runtime.block_on(async {
            let db = Db::for_moving(&options).await?;
            match (is_inward, self.dry_run) {
                (true, true) => moving::survey(&db, &dir).await,
                (true, false) => moving::move_in(&db, &dir).await,
                (false, _) => moving::move_out(&db, &dir).await,
            }
        });
        let moved = moved.map_err(|error| anyhow::Error::new(failure(&error)))?;
        say(&moved, self.json);
        errln!("{}", self.verdict(&moved, &dir.display().to_string()));
        Ok(ExitCode::SUCCESS)
    }

    /// Data directory: the argument, or else from `routes.yaml`.
    fn data_dir(&self) -> anyhow::Result<PathBuf> {
        if let Some(named) = &self.data {
            return Ok(named.clone());
        }
        let found = self.files.settings().and_then(|file| file.data_dir());
        found.map_err(|errors| files::failure(&errors, "or name the directory with --data"))
    }

    fn verdict(&self, moved: &MoveReport, dir: &str) -> String {
        match (self.way.to, self.dry_run, moved.was_done) {
            (Some(_), _, true) => format!(
                "the ledger in {dir} has moved before, and nothing was done now; start the node on \
                 an empty directory"
            ),
            (Some(_), true, false) => "this would move; nothing was changed".to_owned(),
            (Some(_), false, false) => format!(
                "all of it is the same on both sides, and has moved; {dir} is kept as it was, and \
                 no gateway opens it. Start the node on an empty directory"
            ),
            (None, _, true) => format!(
                "everything has moved into {dir} before, and nothing was done now; what is counted \
                 is in the ledger there. Start the gateway on it, without `store.postgres`"
            ),
            (None, ..) => format!(
                "all of it is the same on both sides, and has moved; no node joins the fleet any \
                 more. Remove `store.postgres` and start the gateway on {dir}"
            ),
        }
    }
}

/// Resolve holds that a crash left open, as a start does.
fn recover(dir: &std::path::Path, recovery: RecoveryChoice) -> anyhow::Result<()> {
    // Opening would create an empty ledger in a mistyped directory.
    if !dir.join("journal").exists() {
        return Ok(());
    }
    let recovery = match recovery {
        RecoveryChoice::Void => RecoveryPolicy::Void,
        RecoveryChoice::Floor => RecoveryPolicy::Floor,
    };
    let (ledger, found) = Ledger::open(Options { recovery, ..Options::new(dir) })?;
    // Closed before the move, which opens the same directory.
    ledger.close();
    errln!("{} calls were open, and are in doubt now", found.in_doubt.len());
    Ok(())
}

fn say(moved: &MoveReport, as_json: bool) {
    let row = |account: &str, tally: &moving::AccountTally| {
        let mut row = json!(tally);
        row["account"] = Value::from(account);
        row
    };
    let tallies = &moved.tallies;
    let mut rows: Vec<Value> =
        tallies.accounts.iter().map(|(id, tally)| row(&id.to_string(), tally)).collect();
    rows.push(row("total", &tallies.total()));
    let document = json!({ "data": rows, "codes": tallies.codes, "uses": tallies.uses });
    if as_json {
        outln!("{document}");
    } else {
        outln!("{}", COUNTED.table(&document));
        outln!("codes {}, used {} times", tallies.codes, tallies.uses);
    }
}

fn refused(message: &str, help: &str) -> anyhow::Error {
    let (message, help) = (message.to_owned(), Some(help.to_owned()));
    anyhow::Error::new(Failure { code: REFUSED, message, help })
}

fn failure(error: &MoveError) -> Failure {
    match error {
        MoveError::Db(error) => Failure::of_database(error),
        error => Failure { code: REFUSED, message: error.to_string(), help: None },
    }
}
