//! `tollgate holds`: money of calls that a crash left open.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::admin_call::{AdminRequest, encoded};
use super::asked::{IdempotencyOptions, OutputOptions, Pages};
use super::exit::CODES;
use super::sheets::{HOLDS_IN_DOUBT, RESOLVED};

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
    InDoubt(HoldsInDoubt),
    /// Take a call off the list of those in doubt, and give back what it was charged if that is due.
    #[command(after_help = format!("\
Examples:
  tollgate holds resolve hold_0000000000000029 --note 'the provider billed nothing'
  tollgate holds resolve hold_0000000000000029 --refund 0.0002 --id ticket-815

{CODES}"))]
    Resolve(ResolveHold),
}

#[derive(Args, Debug)]
struct HoldsInDoubt {
    #[command(flatten)]
    pages: Pages,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct ResolveHold {
    /// The hold.
    hold: String,
    /// What was found out.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    /// US dollars to give back; the refund has the command's id.
    #[arg(long, value_name = "AMOUNT")]
    refund: Option<String>,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

impl HoldsArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// What the gateway says, or that it says nothing.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            HoldsCommand::InDoubt(HoldsInDoubt { pages, asked }) => {
                asked.list("/admin/v1/holds/in-doubt", &[], &pages, &HOLDS_IN_DOUBT)
            }
            HoldsCommand::Resolve(ResolveHold { hold, note, refund, once, asked }) => {
                let id = once.id();
                let refund = refund.map(|amount| json!({"id": id, "amount": amount}));
                let ask = AdminRequest::post(format!("/admin/v1/holds/{}/resolve", encoded(&hold)));
                let body = json!({"note": note, "refund": refund});
                asked.show(&ask.with(body).once(&id), &RESOLVED)
            }
        }
    }
}
