//! `tollgate holds`: money of calls that a crash left open.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::asked::{Asked, Pages};
use super::exit::CODES;
use super::sheets::HOLDS_IN_DOUBT;

/// Money of calls that a crash left open.
#[derive(Args, Debug)]
pub(super) struct HoldsArgs {
    #[command(subcommand)]
    command: HoldsCommand,
}

#[derive(Subcommand, Debug)]
enum HoldsCommand {
    /// List the calls that were in flight when the process died, oldest first.
    #[command(after_help = format!("\
Examples:
  tollgate holds in-doubt

{CODES}"))]
    InDoubt(InDoubt),
}

#[derive(Args, Debug)]
struct InDoubt {
    #[command(flatten)]
    pages: Pages,
    #[command(flatten)]
    asked: Asked,
}

impl HoldsArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// What the gateway says, or that it says nothing.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let HoldsCommand::InDoubt(InDoubt { pages, asked }) = self.command;
        asked.list("/admin/v1/holds/in-doubt", &[], &pages, &HOLDS_IN_DOUBT)
    }
}
