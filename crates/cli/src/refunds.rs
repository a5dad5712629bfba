//! `tollgate refunds`: charges that are given back.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::accounts;
use super::admin_call::AdminRequest;
use super::asked::{IdempotencyOptions, OutputOptions};
use super::exit::CODES;
use super::sheets::REFUND;

/// Charges that are given back.
#[derive(Args, Debug)]
pub(super) struct RefundsArgs {
    #[command(subcommand)]
    command: RefundsCommand,
}

#[derive(Subcommand, Debug)]
enum RefundsCommand {
    /// Give back what a call has cost, or some of it. `ledger entries` shows the holds.
    #[command(after_help = format!("\
Examples:
  tollgate refunds create acct_3f1c0a5b7d9e2468 hold_0000000000000029 0.0001 --id ticket-815

{CODES}"))]
    Create(CreateRefund),
}

#[derive(Args, Debug)]
struct CreateRefund {
    /// The account's id.
    account: String,
    /// The hold of the call.
    hold: String,
    /// US dollars, such as `0.05`.
    amount: String,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

impl RefundsArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// What the gateway says, or that it says nothing.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let RefundsCommand::Create(CreateRefund { account, hold, amount, once, asked }) =
            self.command;
        let ask = AdminRequest::post(format!("{}/refunds", accounts::path(&account)));
        let body = json!({"hold": hold, "amount": amount, "id": once.id()});
        asked.show(&ask.with(body), &REFUND)
    }
}
