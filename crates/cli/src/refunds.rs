//! `tollgate refunds`: refund charges.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::accounts;
use super::admin_call::AdminRequest;
use super::exit::CODES;
use super::output::{IdempotencyOptions, OutputOptions};
use super::sheets::REFUND;

/// Refund charges of single calls.
#[derive(Debug, Subcommand)]
pub(super) enum RefundsCommand {
    /// Refund a call, fully or in part. `ledger entries` shows the holds.
    #[command(after_help = format!("\
Examples:
  tollgate refunds create acct_3f1c0a5b7d9e2468 hold_0000000000000029 0.0001 --id ticket-815

{CODES}"))]
    Create {
        /// Id of the account.
        account: String,
        /// Hold id of the call.
        hold: String,
        /// US dollars, such as `0.05`.
        amount: String,
        #[command(flatten)]
        once: IdempotencyOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
}

impl RefundsCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Self::Create { account, hold, amount, once, output } = self;
        let ask = AdminRequest::post(format!("{}/refunds", accounts::path(&account)));
        // The id goes into the body, not the header: it names the refund in the customer's statement.
        let body = json!({"hold": hold, "amount": amount, "id": once.id()});
        output.show(&ask.with(body), &REFUND)
    }
}
