//! `tollgate grants`: grant credit to customers.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::accounts;
use super::admin_call::AdminRequest;
use super::exit::CODES;
use super::output::{IdempotencyOptions, OutputOptions};
use super::sheets::GRANT;

/// Grant credit to customers.
#[derive(Debug, Subcommand)]
pub(super) enum GrantsCommand {
    /// Grant credit to an account.
    #[command(after_help = format!("\
Examples:
  tollgate grants create acct_3f1c0a5b7d9e2468 10.00 --id invoice-4711

{CODES}"))]
    Create {
        /// Id of the account.
        account: String,
        /// US dollars, such as `10.00`.
        amount: String,
        #[command(flatten)]
        once: IdempotencyOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
}

impl GrantsCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Self::Create { account, amount, once, output } = self;
        let ask = AdminRequest::post(format!("{}/grants", accounts::path(&account)));
        // The id goes into the body, not the header: it names the grant in the customer's statement.
        output.show(&ask.with(json!({"amount": amount, "id": once.id()})), &GRANT)
    }
}
