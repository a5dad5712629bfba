//! `tollgate write-offs`: debts that are given up.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::accounts;
use super::admin_call::AdminRequest;
use super::asked::{IdempotencyOptions, OutputOptions};
use super::exit::CODES;
use super::sheets::WRITE_OFF;

/// Debts that are given up.
#[derive(Args, Debug)]
pub(super) struct WriteOffsArgs {
    #[command(subcommand)]
    command: WriteOffsCommand,
}

#[derive(Subcommand, Debug)]
enum WriteOffsCommand {
    /// Give up what an account owes, or some of it: you bear it. `accounts show` tells the debt.
    #[command(after_help = format!("\
Examples:
  tollgate write-offs create acct_3f1c0a5b7d9e2468 0.12 --note agreed

{CODES}"))]
    Create(CreateWriteOff),
}

#[derive(Args, Debug)]
struct CreateWriteOff {
    /// The account's id.
    account: String,
    /// US dollars, such as `0.05`.
    amount: String,
    /// Why: it stands in the account's entries.
    #[arg(long, value_name = "TEXT")]
    note: String,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

impl WriteOffsArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// What the gateway says, or that it says nothing.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let WriteOffsCommand::Create(CreateWriteOff { account, amount, note, once, asked }) =
            self.command;
        let ask = AdminRequest::post(format!("{}/write-offs", accounts::path(&account)));
        let body = json!({"amount": amount, "note": note, "id": once.id()});
        asked.show(&ask.with(body), &WRITE_OFF)
    }
}
