//! `tollgate holds`: holds that a crash left open.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::admin_call::{AdminRequest, encoded};
use super::exit::CODES;
use super::output::{IdempotencyOptions, OutputOptions, PageOptions};
use super::sheets::{HOLDS_IN_DOUBT, RESOLVED};

/// Resolve holds that a crash left open.
#[derive(Debug, Subcommand)]
pub(super) enum HoldsCommand {
    /// List holds of calls that were in flight during a crash, oldest first.
    #[command(after_help = format!("\
Examples:
  tollgate holds in-doubt

{CODES}"))]
    InDoubt {
        #[command(flatten)]
        pages: PageOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Resolve a hold in doubt, optionally with a refund.
    #[command(after_help = format!("\
Examples:
  tollgate holds resolve hold_0000000000000029 --note 'the provider billed nothing'
  tollgate holds resolve hold_0000000000000029 --refund 0.0002 --id ticket-815

{CODES}"))]
    Resolve {
        /// Id of the hold.
        hold: String,
        /// Note on the findings.
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
        /// US dollars to refund; the refund has the command's idempotency id.
        #[arg(long, value_name = "AMOUNT")]
        refund: Option<String>,
        #[command(flatten)]
        once: IdempotencyOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
}

impl HoldsCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::InDoubt { pages, output } => {
                output.list("/admin/v1/holds/in-doubt", &[], &pages, &HOLDS_IN_DOUBT)
            }
            Self::Resolve { hold, note, refund, once, output } => {
                let id = once.id();
                // The same id for both: a repeated command neither resolves nor refunds twice.
                let refund = refund.map(|amount| json!({"id": id, "amount": amount}));
                let ask = AdminRequest::post(format!("/admin/v1/holds/{}/resolve", encoded(&hold)));
                let body = json!({"note": note, "refund": refund});
                output.show(&ask.with(body).once(&id), &RESOLVED)
            }
        }
    }
}
