//! `tollgate accounts`: manage customers' accounts.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::admin_call::{AdminRequest, encoded};
use super::exit::CODES;
use super::limit::{self, HoldOptions, RateOptions};
use super::output::{IdempotencyOptions, OutputOptions, PageOptions, with_query};
use super::sheets::{ACCOUNT, ACCOUNTS, LOGIN, USAGE, WEBHOOK_SECRET};

/// Manage customers' accounts.
#[derive(Debug, Subcommand)]
pub(super) enum AccountsCommand {
    /// List all accounts, oldest first.
    #[command(after_help = format!("\
Examples:
  tollgate accounts list
  tollgate accounts list --all --json | jq -r '.data[] | [.id, .balance.available] | @tsv'

{CODES}"))]
    List {
        #[command(flatten)]
        pages: PageOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Open an account.
    #[command(after_help = format!("\
Examples:
  tollgate accounts create 'Example Ltd'
  account=$(tollgate accounts create 'Example Ltd' --quiet)

{CODES}"))]
    Create {
        /// Account name: 1 to 256 bytes.
        name: String,
        #[command(flatten)]
        once: IdempotencyOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Show an account with its balance and limits.
    #[command(after_help = format!("\
Examples:
  tollgate accounts show acct_3f1c0a5b7d9e2468

{CODES}"))]
    Show(AccountArgument),
    /// Suspend an account; its balance stays.
    #[command(after_help = format!("\
Examples:
  tollgate accounts suspend acct_3f1c0a5b7d9e2468

{CODES}"))]
    Suspend(ChangeAccount),
    /// Resume a suspended account.
    #[command(after_help = format!("\
Examples:
  tollgate accounts resume acct_3f1c0a5b7d9e2468

{CODES}"))]
    Resume(ChangeAccount),
    /// Set the rate limits that all keys of an account share. Omitted limits stay unchanged.
    #[command(after_help = format!("\
Examples:
  tollgate accounts limit acct_3f1c0a5b7d9e2468 --requests-per-minute 3000
  tollgate accounts limit acct_3f1c0a5b7d9e2468 --requests-per-minute none

{CODES}"))]
    Limit {
        /// Id of the account.
        account: String,
        #[command(flatten)]
        rates: RateOptions,
        #[command(flatten)]
        once: IdempotencyOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Set the credit line of an account, which is spent after its own balance. Lowering it withdraws
    /// the unused part; the used part above the new line becomes a debt at once.
    #[command(after_help = format!("\
Examples:
  tollgate accounts credit acct_3f1c0a5b7d9e2468 100.00
  tollgate accounts credit acct_3f1c0a5b7d9e2468 none

{CODES}"))]
    Credit {
        /// Id of the account.
        account: String,
        /// US dollars, such as `100.00`, or `none`.
        #[arg(value_parser = limit::amount)]
        amount: Value,
        #[command(flatten)]
        once: IdempotencyOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Set how requests that exceed an account's balance are held. Omitted settings stay unchanged.
    #[command(after_help = format!("\
Examples:
  tollgate accounts holds acct_3f1c0a5b7d9e2468 --means credit,clamp --output-floor 2048
  tollgate accounts holds acct_3f1c0a5b7d9e2468 --means default --wait-ms 5000

{CODES}"))]
    Holds {
        /// Id of the account.
        account: String,
        #[command(flatten)]
        rules: HoldOptions,
        #[command(flatten)]
        once: IdempotencyOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Change the name of an account.
    #[command(after_help = format!("\
Examples:
  tollgate accounts rename acct_3f1c0a5b7d9e2468 'Example Ltd (London)'

{CODES}"))]
    Rename {
        /// Id of the account.
        account: String,
        /// New name: 1 to 256 bytes.
        name: String,
        #[command(flatten)]
        once: IdempotencyOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Show an account's usage by key and model, oldest first.
    #[command(after_help = format!("\
Examples:
  tollgate accounts usage acct_3f1c0a5b7d9e2468
  tollgate accounts usage acct_3f1c0a5b7d9e2468 --by hour --from 2026-01-31T00:00:00Z

{CODES}"))]
    Usage {
        /// Id of the account.
        account: String,
        /// Start, rounded down to the hour or day, such as `2026-01-31T00:00:00Z`. Default: 30 days ago.
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// End of the period. Default: now.
        #[arg(long, value_name = "TIME")]
        to: Option<String>,
        /// Row interval: `hour` or `day`. Default: `day`.
        #[arg(long, value_name = "UNIT")]
        by: Option<String>,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Set a customer's console login, for example after a lost password. The password is read from a
    /// file or from standard input.
    #[command(after_help = format!("\
Examples:
  tollgate accounts login acct_3f1c0a5b7d9e2468 ada@example.com --password-file password
  openssl rand -base64 18 | tee password | tollgate accounts login acct_3f1c0a5b7d9e2468 ada@example.com

{CODES}"))]
    Login(SetLogin),
    /// Show the secret with which an account's receivers verify webhook signatures.
    #[command(after_help = format!("\
Examples:
  tollgate accounts webhook-secret acct_3f1c0a5b7d9e2468 --quiet > webhook-secret

{CODES}"))]
    WebhookSecret(AccountArgument),
}

#[derive(Args, Debug)]
pub(super) struct AccountArgument {
    /// Id of the account.
    account: String,
    #[command(flatten)]
    output: OutputOptions,
}

#[derive(Args, Debug)]
pub(super) struct ChangeAccount {
    /// Id of the account.
    account: String,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    output: OutputOptions,
}

#[derive(Args, Debug)]
pub(super) struct SetLogin {
    /// Id of the account.
    account: String,
    /// E-mail address of the login.
    email: String,
    /// File with the password. Default: standard input.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// Longest password that is read, in bytes; the gateway's own limit is lower.
const PASSWORD_BYTES_MAX: u64 = 4096;

/// Path of the accounts.
const PATH: &str = "/admin/v1/accounts";

/// Path of one account.
pub(super) fn path(account: &str) -> String {
    format!("{PATH}/{}", encoded(account))
}

impl AccountsCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { pages, output } => output.list(PATH, &[], &pages, &ACCOUNTS),
            Self::Create { name, once, output } => {
                let ask = AdminRequest::post(PATH).with(json!({"name": name}));
                output.show(&ask.once(&once.id()), &ACCOUNT)
            }
            Self::Show(AccountArgument { account, output }) => {
                output.show(&AdminRequest::get(path(&account)), &ACCOUNT)
            }
            Self::Suspend(change) => change.suspended(true),
            Self::Resume(change) => change.suspended(false),
            Self::Limit { account, rates, once, output } => {
                let limits = limit::given(rates.fields())?;
                let ask = AdminRequest::patch(path(&account)).with(json!({"limits": limits}));
                output.show(&ask.once(&once.id()), &ACCOUNT)
            }
            Self::Credit { account, amount, once, output } => {
                let body = json!({"credit_limit": amount});
                let ask = AdminRequest::patch(path(&account)).with(body);
                output.show(&ask.once(&once.id()), &ACCOUNT)
            }
            Self::Holds { account, rules, once, output } => {
                let holds = limit::given(rules.fields())?;
                let ask = AdminRequest::patch(path(&account)).with(json!({"holds": holds}));
                output.show(&ask.once(&once.id()), &ACCOUNT)
            }
            Self::Rename { account, name, once, output } => {
                let ask = AdminRequest::patch(path(&account)).with(json!({"name": name}));
                output.show(&ask.once(&once.id()), &ACCOUNT)
            }
            Self::Usage { account, from, to, by, output } => {
                let query =
                    [("from", from.as_deref()), ("to", to.as_deref()), ("by", by.as_deref())];
                let path = with_query(&format!("{}/usage", path(&account)), &query);
                output.show(&AdminRequest::get(path), &USAGE)
            }
            Self::Login(login) => login.run(),
            Self::WebhookSecret(AccountArgument { account, output }) => {
                let ask = AdminRequest::get(format!("{}/webhook-secret", path(&account)));
                output.show(&ask, &WEBHOOK_SECRET)
            }
        }
    }
}

impl SetLogin {
    fn run(self) -> anyhow::Result<ExitCode> {
        let password = match &self.password_file {
            Some(file) => File::open(file)
                .and_then(read_password)
                .with_context(|| format!("cannot read {}", file.display()))?,
            None => read_password(std::io::stdin()).context("cannot read standard input")?,
        };
        let ask = AdminRequest::put(format!("{}/login", path(&self.account)));
        let body = json!({"email": self.email, "password": password});
        self.output.show(&ask.with(body).once(&self.once.id()), &LOGIN)
    }
}

/// Read the password, without a trailing line break.
fn read_password(from: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    // Bounded: the file may be a device, or the wrong one.
    from.take(PASSWORD_BYTES_MAX).read_to_string(&mut text)?;
    // Only the line break of editors and `echo`: other blanks may be part of the password.
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

impl ChangeAccount {
    fn suspended(&self, suspended: bool) -> anyhow::Result<ExitCode> {
        let ask = AdminRequest::patch(path(&self.account)).with(json!({"suspended": suspended}));
        self.output.show(&ask.once(&self.once.id()), &ACCOUNT)
    }
}
