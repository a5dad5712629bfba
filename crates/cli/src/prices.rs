//! `tollgate prices`: customers' price rules and price groups.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::accounts;
use super::admin_call::{AdminRequest, encoded};
use super::exit::CODES;
use super::output::{IdempotencyOptions, OutputOptions, PageOptions};
use super::sheets::{ACCOUNT_PRICES, CHARGED_PRICES, PRICE_GROUP, PRICE_GROUPS};

/// Manage customers' price rules and price groups.
#[derive(Debug, Subcommand)]
pub(super) enum PricesCommand {
    /// Show an account's price group and rules.
    #[command(after_help = format!("\
Examples:
  tollgate prices show acct_3f1c0a5b7d9e2468

{CODES}"))]
    Show {
        /// Id of the account.
        account: String,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Replace an account's price group and rules, for new calls. Without a group and rules it pays list
    /// prices.
    #[command(after_help = format!("\
Examples:
  tollgate prices set acct_3f1c0a5b7d9e2468 --rule 'gpt-5*=0.9' --rule '*=1.1'
  tollgate prices set acct_3f1c0a5b7d9e2468 --group resellers
  tollgate prices set acct_3f1c0a5b7d9e2468 --file rules.json
  tollgate prices set acct_3f1c0a5b7d9e2468

{CODES}"))]
    Set {
        /// Id of the account.
        account: String,
        /// Price group whose rules apply where none of the account's own does.
        #[arg(long, value_name = "NAME")]
        group: Option<String>,
        #[command(flatten)]
        rules: Rules,
        #[command(flatten)]
        once: IdempotencyOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Set the rules of a price group, for new calls, creating it if missing.
    #[command(after_help = format!("\
Examples:
  tollgate prices group resellers --rule '*=0.85'
  tollgate prices group resellers --file rules.json

{CODES}"))]
    Group {
        /// Group name: 1 to 64 letters, digits, dots, hyphens and underscores.
        name: String,
        #[command(flatten)]
        rules: Rules,
        #[command(flatten)]
        once: IdempotencyOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// List the price groups, by name.
    #[command(after_help = format!("\
Examples:
  tollgate prices groups

{CODES}"))]
    Groups(OutputOptions),
    /// List the price versions that calls were charged by, newest first.
    #[command(after_help = format!("\
Examples:
  tollgate prices charged
  tollgate prices charged --all --json | jq -c '.data[] | [.version, .model, .pricing]'

{CODES}"))]
    Charged {
        #[command(flatten)]
        pages: PageOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
}

#[derive(Args, Debug)]
pub(super) struct Rules {
    /// Price rule: a model name, a prefix with an asterisk, or an asterisk, and the factor on list
    /// prices. May be repeated.
    #[arg(long = "rule", value_name = "MODELS=FACTOR", conflicts_with = "file")]
    rules: Vec<String>,
    /// File with a JSON list of rules in the admin API's format, for absolute prices and dates.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Path of the price groups.
const GROUPS: &str = "/admin/v1/price-groups";

impl PricesCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let prices_of = |account: &str| format!("{}/prices", accounts::path(account));
        match self {
            Self::Show { account, output } => {
                output.show(&AdminRequest::get(prices_of(&account)), &ACCOUNT_PRICES)
            }
            Self::Set { account, group, rules, once, output } => {
                let body = json!({"group": group, "rules": rules.read()?});
                let ask = AdminRequest::put(prices_of(&account)).with(body);
                output.show(&ask.once(&once.id()), &ACCOUNT_PRICES)
            }
            Self::Group { name, rules, once, output } => {
                let ask = AdminRequest::put(format!("{GROUPS}/{}", encoded(&name)));
                let ask = ask.with(json!({"rules": rules.read()?}));
                output.show(&ask.once(&once.id()), &PRICE_GROUP)
            }
            Self::Groups(output) => output.show(&AdminRequest::get(GROUPS), &PRICE_GROUPS),
            Self::Charged { pages, output } => {
                output.list("/admin/v1/prices", &[], &pages, &CHARGED_PRICES)
            }
        }
    }
}

impl Rules {
    /// Rules in the admin API's format.
    fn read(&self) -> anyhow::Result<Value> {
        if let Some(file) = &self.file {
            return read_file(file);
        }
        // Factors stay text: the gateway parses them exactly.
        let rule = |typed: &String| {
            let (models, factor) = typed.split_once('=').with_context(|| {
                format!("`{typed}` is no rule: write it as MODELS=FACTOR, such as 'gpt-5*=0.9'")
            })?;
            Ok(json!({"models": models, "factor": factor}))
        };
        self.rules.iter().map(rule).collect()
    }
}

fn read_file(file: &Path) -> anyhow::Result<Value> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    serde_json::from_str(&text).with_context(|| format!("{shown} is no JSON"))
}
