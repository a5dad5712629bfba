//! `tollgate accounts`: customers' accounts.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::admin_call::{Ask, encoded};
use super::asked::{Asked, Once, Pages};
use super::exit::CODES;
use super::limit::{self, Rates};
use super::sheets::{ACCOUNT, ACCOUNTS, WEBHOOK_SECRET};

/// Customers' accounts.
#[derive(Args, Debug)]
pub(super) struct AccountsArgs {
    #[command(subcommand)]
    command: AccountsCommand,
}

#[derive(Subcommand, Debug)]
enum AccountsCommand {
    /// List all accounts, oldest first.
    #[command(after_help = format!("\
Examples:
  tollgate accounts list
  tollgate accounts list --all --json | jq -r '.data[] | [.id, .balance.available] | @tsv'

{CODES}"))]
    List(List),
    /// Open an account.
    #[command(after_help = format!("\
Examples:
  tollgate accounts create 'Example Ltd'
  account=$(tollgate accounts create 'Example Ltd' --quiet)

{CODES}"))]
    Create(Create),
    /// Show one account: its balance and its limits.
    #[command(after_help = format!("\
Examples:
  tollgate accounts show acct_3f1c0a5b7d9e2468

{CODES}"))]
    Show(One),
    /// Let an account make no more calls; its money stays.
    #[command(after_help = format!("\
Examples:
  tollgate accounts suspend acct_3f1c0a5b7d9e2468

{CODES}"))]
    Suspend(Change),
    /// Let a suspended account make calls again.
    #[command(after_help = format!("\
Examples:
  tollgate accounts resume acct_3f1c0a5b7d9e2468

{CODES}"))]
    Resume(Change),
    /// Say how much all keys of an account together may use. What is left out stays as it is.
    #[command(after_help = format!("\
Examples:
  tollgate accounts limit acct_3f1c0a5b7d9e2468 --requests-per-minute 3000
  tollgate accounts limit acct_3f1c0a5b7d9e2468 --requests-per-minute none

{CODES}"))]
    Limit(Limit),
    /// Show the secret that an account's receivers check the signatures of webhooks with.
    #[command(after_help = format!("\
Examples:
  tollgate accounts webhook-secret acct_3f1c0a5b7d9e2468 --quiet > webhook-secret

{CODES}"))]
    WebhookSecret(One),
}

#[derive(Args, Debug)]
struct List {
    #[command(flatten)]
    pages: Pages,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Args, Debug)]
struct Create {
    /// The account's name: 1 to 256 bytes.
    name: String,
    #[command(flatten)]
    once: Once,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Args, Debug)]
struct One {
    /// The account's id.
    account: String,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Args, Debug)]
struct Change {
    /// The account's id.
    account: String,
    #[command(flatten)]
    once: Once,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Args, Debug)]
struct Limit {
    /// The account's id.
    account: String,
    #[command(flatten)]
    rates: Rates,
    #[command(flatten)]
    once: Once,
    #[command(flatten)]
    asked: Asked,
}

/// Where the accounts are.
const PATH: &str = "/admin/v1/accounts";

/// Where one account is.
pub(super) fn path(account: &str) -> String {
    format!("{PATH}/{}", encoded(account))
}

impl AccountsArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// What the gateway says, or that it says nothing.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            AccountsCommand::List(List { pages, asked }) => {
                asked.list(PATH, &[], &pages, &ACCOUNTS)
            }
            AccountsCommand::Create(Create { name, once, asked }) => {
                let ask = Ask::post(PATH).with(json!({"name": name}));
                asked.show(&ask.once(&once.id()), &ACCOUNT)
            }
            AccountsCommand::Show(One { account, asked }) => {
                asked.show(&Ask::get(path(&account)), &ACCOUNT)
            }
            AccountsCommand::Suspend(change) => change.suspended(true),
            AccountsCommand::Resume(change) => change.suspended(false),
            AccountsCommand::Limit(Limit { account, rates, once, asked }) => {
                let limits = limit::given(rates.fields())?;
                let ask = Ask::patch(path(&account)).with(json!({"limits": limits}));
                asked.show(&ask.once(&once.id()), &ACCOUNT)
            }
            AccountsCommand::WebhookSecret(One { account, asked }) => {
                let ask = Ask::get(format!("{}/webhook-secret", path(&account)));
                asked.show(&ask, &WEBHOOK_SECRET)
            }
        }
    }
}

impl Change {
    fn suspended(&self, suspended: bool) -> anyhow::Result<ExitCode> {
        let ask = Ask::patch(path(&self.account)).with(json!({"suspended": suspended}));
        self.asked.show(&ask.once(&self.once.id()), &ACCOUNT)
    }
}
