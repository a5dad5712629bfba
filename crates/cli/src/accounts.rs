//! `tollgate accounts`: customers' accounts.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::admin_call::{AdminRequest, encoded};
use super::asked::{IdempotencyOptions, OutputOptions, Pages, with_query};
use super::exit::CODES;
use super::limit::{self, HoldOptions, RateOptions};
use super::sheets::{ACCOUNT, ACCOUNTS, LOGIN, USAGE, WEBHOOK_SECRET};

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
    List(ListAccounts),
    /// Open an account.
    #[command(after_help = format!("\
Examples:
  tollgate accounts create 'Example Ltd'
  account=$(tollgate accounts create 'Example Ltd' --quiet)

{CODES}"))]
    Create(CreateAccount),
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
    Suspend(ChangeAccount),
    /// Let a suspended account make calls again.
    #[command(after_help = format!("\
Examples:
  tollgate accounts resume acct_3f1c0a5b7d9e2468

{CODES}"))]
    Resume(ChangeAccount),
    /// Say how much all keys of an account together may use. What is left out stays as it is.
    #[command(after_help = format!("\
Examples:
  tollgate accounts limit acct_3f1c0a5b7d9e2468 --requests-per-minute 3000
  tollgate accounts limit acct_3f1c0a5b7d9e2468 --requests-per-minute none

{CODES}"))]
    Limit(Limit),
    /// Set the credit line of an account: money that is lent to it, and spent after its own. A lower line
    /// takes back what is available of it; what was spent of the rest is owed at once.
    #[command(after_help = format!("\
Examples:
  tollgate accounts credit acct_3f1c0a5b7d9e2468 100.00
  tollgate accounts credit acct_3f1c0a5b7d9e2468 none

{CODES}"))]
    Credit(SetCredit),
    /// Say how requests of an account are held when they do not fit its money. What is left out stays as
    /// it is.
    #[command(after_help = format!("\
Examples:
  tollgate accounts holds acct_3f1c0a5b7d9e2468 --means credit,clamp --output-floor 2048
  tollgate accounts holds acct_3f1c0a5b7d9e2468 --means default --wait-ms 5000

{CODES}"))]
    Holds(SetHolds),
    /// Give an account another name.
    #[command(after_help = format!("\
Examples:
  tollgate accounts rename acct_3f1c0a5b7d9e2468 'Example Ltd (London)'

{CODES}"))]
    Rename(Rename),
    /// Show what an account has used, by key and model, oldest first.
    #[command(after_help = format!("\
Examples:
  tollgate accounts usage acct_3f1c0a5b7d9e2468
  tollgate accounts usage acct_3f1c0a5b7d9e2468 --by hour --from 2026-01-31T00:00:00Z

{CODES}"))]
    Usage(AccountUsage),
    /// Say how the customer logs in to the console: for who has no login, or has lost the password.
    /// The password is read from a file or from standard input.
    #[command(after_help = format!("\
Examples:
  tollgate accounts login acct_3f1c0a5b7d9e2468 ada@example.com --password-file password
  openssl rand -base64 18 | tee password | tollgate accounts login acct_3f1c0a5b7d9e2468 ada@example.com

{CODES}"))]
    Login(Login),
    /// Show the secret that an account's receivers check the signatures of webhooks with.
    #[command(after_help = format!("\
Examples:
  tollgate accounts webhook-secret acct_3f1c0a5b7d9e2468 --quiet > webhook-secret

{CODES}"))]
    WebhookSecret(One),
}

#[derive(Args, Debug)]
struct ListAccounts {
    #[command(flatten)]
    pages: Pages,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct CreateAccount {
    /// The account's name: 1 to 256 bytes.
    name: String,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct One {
    /// The account's id.
    account: String,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct ChangeAccount {
    /// The account's id.
    account: String,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct Limit {
    /// The account's id.
    account: String,
    #[command(flatten)]
    rates: RateOptions,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct SetCredit {
    /// The id of the account.
    account: String,
    /// US dollars, such as `100.00`, or `none`.
    #[arg(value_parser = limit::amount)]
    amount: Value,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct SetHolds {
    /// The id of the account.
    account: String,
    #[command(flatten)]
    rules: HoldOptions,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct Rename {
    /// The account's id.
    account: String,
    /// Its new name: 1 to 256 bytes.
    name: String,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct AccountUsage {
    /// The account's id.
    account: String,
    /// From the hour or day of this time, such as `2026-01-31T00:00:00Z`. Default: 30 days ago.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Up to this time. Default: now.
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// A row for each `hour` or `day`. Default: `day`.
    #[arg(long, value_name = "UNIT")]
    by: Option<String>,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct Login {
    /// The account's id.
    account: String,
    /// The e-mail address.
    email: String,
    /// A file with the password. Default: standard input.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

/// The longest password that is read, in bytes; the gateway takes shorter ones alone.
const PASSWORD_BYTES_MAX: u64 = 4096;

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
            AccountsCommand::List(ListAccounts { pages, asked }) => {
                asked.list(PATH, &[], &pages, &ACCOUNTS)
            }
            AccountsCommand::Create(CreateAccount { name, once, asked }) => {
                let ask = AdminRequest::post(PATH).with(json!({"name": name}));
                asked.show(&ask.once(&once.id()), &ACCOUNT)
            }
            AccountsCommand::Show(One { account, asked }) => {
                asked.show(&AdminRequest::get(path(&account)), &ACCOUNT)
            }
            AccountsCommand::Suspend(change) => change.suspended(true),
            AccountsCommand::Resume(change) => change.suspended(false),
            AccountsCommand::Limit(Limit { account, rates, once, asked }) => {
                let limits = limit::given(rates.fields())?;
                let ask = AdminRequest::patch(path(&account)).with(json!({"limits": limits}));
                asked.show(&ask.once(&once.id()), &ACCOUNT)
            }
            AccountsCommand::Credit(SetCredit { account, amount, once, asked }) => {
                let body = json!({"credit_limit": amount});
                let ask = AdminRequest::patch(path(&account)).with(body);
                asked.show(&ask.once(&once.id()), &ACCOUNT)
            }
            AccountsCommand::Holds(SetHolds { account, rules, once, asked }) => {
                let holds = limit::given(rules.fields())?;
                let ask = AdminRequest::patch(path(&account)).with(json!({"holds": holds}));
                asked.show(&ask.once(&once.id()), &ACCOUNT)
            }
            AccountsCommand::Rename(Rename { account, name, once, asked }) => {
                let ask = AdminRequest::patch(path(&account)).with(json!({"name": name}));
                asked.show(&ask.once(&once.id()), &ACCOUNT)
            }
            AccountsCommand::Usage(AccountUsage { account, from, to, by, asked }) => {
                let query =
                    [("from", from.as_deref()), ("to", to.as_deref()), ("by", by.as_deref())];
                let path = with_query(&format!("{}/usage", path(&account)), &query);
                asked.show(&AdminRequest::get(path), &USAGE)
            }
            AccountsCommand::Login(login) => login.run(),
            AccountsCommand::WebhookSecret(One { account, asked }) => {
                let ask = AdminRequest::get(format!("{}/webhook-secret", path(&account)));
                asked.show(&ask, &WEBHOOK_SECRET)
            }
        }
    }
}

impl Login {
    fn run(self) -> anyhow::Result<ExitCode> {
        let password = match &self.password_file {
            Some(file) => File::open(file)
                .and_then(read_password)
                .with_context(|| format!("cannot read {}", file.display()))?,
            None => read_password(std::io::stdin()).context("cannot read standard input")?,
        };
        let ask = AdminRequest::put(format!("{}/login", path(&self.account)));
        let body = json!({"email": self.email, "password": password});
        self.asked.show(&ask.with(body).once(&self.once.id()), &LOGIN)
    }
}

/// The text without the line break at its end.
fn read_password(from: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    from.take(PASSWORD_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

impl ChangeAccount {
    fn suspended(&self, suspended: bool) -> anyhow::Result<ExitCode> {
        let ask = AdminRequest::patch(path(&self.account)).with(json!({"suspended": suspended}));
        self.asked.show(&ask.once(&self.once.id()), &ACCOUNT)
    }
}
