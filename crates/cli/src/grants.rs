//! `tollgate grants`: credit for customers.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::accounts;
use super::admin_call::AdminRequest;
use super::asked::{IdempotencyOptions, OutputOptions};
use super::exit::CODES;
use super::sheets::GRANT;

/// Credit for customers.
#[derive(Args, Debug)]
pub(super) struct GrantsArgs {
    #[command(subcommand)]
    command: GrantsCommand,
}

#[derive(Subcommand, Debug)]
enum GrantsCommand {
    /// Give an account credit.
    #[command(after_help = format!("\
Examples:
  tollgate grants create acct_3f1c0a5b7d9e2468 10.00 --id invoice-4711

{CODES}"))]
    Create(CreateGrant),
}

#[derive(Args, Debug)]
struct CreateGrant {
    /// The account's id.
    account: String,
    /// US dollars, such as `10.00`.
    amount: String,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

impl GrantsArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// What the gateway says, or that it says nothing.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let GrantsCommand::Create(CreateGrant { account, amount, once, asked }) = self.command;
        let ask = AdminRequest::post(format!("{}/grants", accounts::path(&account)));
        asked.show(&ask.with(json!({"amount": amount, "id": once.id()})), &GRANT)
    }
}
