//! `tollgate write-offs`: write off debts.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::accounts;
use super::admin_call::AdminRequest;
use super::exit::CODES;
use super::output::{IdempotencyOptions, OutputOptions};
use super::sheets::WRITE_OFF;

/// Write off debts of accounts.
#[derive(Debug, Subcommand)]
pub(super) enum WriteOffsCommand {
    /// Write off an account's debt, fully or in part, at your expense. `accounts show` prints the debt.
    #[command(after_help = format!("\
Examples:
  tollgate write-offs create acct_3f1c0a5b7d9e2468 0.12 --note agreed

{CODES}"))]
    Create {
        /// Id of the account.
        account: String,
        /// US dollars, such as `0.05`.
        amount: String,
        /// Reason, recorded in the account's entries.
        #[arg(long, value_name = "TEXT")]
        note: String,
        #[command(flatten)]
        once: IdempotencyOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
}

impl WriteOffsCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Self::Create { account, amount, note, once, output } = self;
        let ask = AdminRequest::post(format!("{}/write-offs", accounts::path(&account)));
        // The id goes into the body, not the header: it names the write-off in the customer's statement.
        let body = json!({"amount": amount, "note": note, "id": once.id()});
        output.show(&ask.with(body), &WRITE_OFF)
    }
}
