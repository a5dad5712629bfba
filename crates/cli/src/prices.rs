//! `tollgate prices`: what customers pay in the place of the list, and what calls were charged by.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::accounts;
use super::admin_call::{AdminRequest, encoded};
use super::asked::{IdempotencyOptions, OutputOptions, Pages};
use super::exit::CODES;
use super::sheets::{ACCOUNT_PRICES, CHARGED_PRICES, PRICE_GROUP, PRICE_GROUPS};

/// What customers pay in the place of the list, and what calls were charged by.
#[derive(Args, Debug)]
pub(super) struct PricesArgs {
    #[command(subcommand)]
    command: PricesCommand,
}

#[derive(Subcommand, Debug)]
enum PricesCommand {
    /// Show what an account pays in the place of the list.
    #[command(after_help = format!("\
Examples:
  tollgate prices show acct_3f1c0a5b7d9e2468

{CODES}"))]
    Show(ShowPrices),
    /// Set all that an account pays in the place of the list, for calls that come from now on. Without
    /// a group and rules it pays the list.
    #[command(after_help = format!("\
Examples:
  tollgate prices set acct_3f1c0a5b7d9e2468 --rule 'gpt-5*=0.9' --rule '*=1.1'
  tollgate prices set acct_3f1c0a5b7d9e2468 --group resellers
  tollgate prices set acct_3f1c0a5b7d9e2468 --file rules.json
  tollgate prices set acct_3f1c0a5b7d9e2468

{CODES}"))]
    Set(SetPrices),
    /// Set the rules of a price group, for calls that come from now on. One that is not there is made.
    #[command(after_help = format!("\
Examples:
  tollgate prices group resellers --rule '*=0.85'
  tollgate prices group resellers --file rules.json

{CODES}"))]
    Group(SetGroup),
    /// List the price groups, by name.
    #[command(after_help = format!("\
Examples:
  tollgate prices groups

{CODES}"))]
    Groups(OutputOptions),
    /// List the prices that calls were charged by, newest first.
    #[command(after_help = format!("\
Examples:
  tollgate prices charged
  tollgate prices charged --all --json | jq -c '.data[] | [.version, .model, .pricing]'

{CODES}"))]
    Charged(ListCharged),
}

#[derive(Args, Debug)]
struct ShowPrices {
    /// The id of the account that pays them.
    account: String,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct Rules {
    /// What some models cost: a name, the beginning of names and an asterisk, or an asterisk, and what
    /// their prices are multiplied by. Can be repeated.
    #[arg(long = "rule", value_name = "MODELS=FACTOR", conflicts_with = "file")]
    rules: Vec<String>,
    /// A file with a JSON list of rules, as the admin API takes them: for prices and dates.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct SetPrices {
    /// The id of the account that pays them.
    account: String,
    /// The price group whose rules count where none of its own does.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    #[command(flatten)]
    rules: Rules,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct SetGroup {
    /// The group's name: 1 to 64 letters, digits, dots, hyphens and underscores.
    name: String,
    #[command(flatten)]
    rules: Rules,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Args, Debug)]
struct ListCharged {
    #[command(flatten)]
    pages: Pages,
    #[command(flatten)]
    asked: OutputOptions,
}

/// Where the price groups are.
const GROUPS: &str = "/admin/v1/price-groups";

impl PricesArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// What the gateway says, that it says nothing, or that the rules cannot be read.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let prices_of = |account: &str| format!("{}/prices", accounts::path(account));
        match self.command {
            PricesCommand::Show(ShowPrices { account, asked }) => {
                asked.show(&AdminRequest::get(prices_of(&account)), &ACCOUNT_PRICES)
            }
            PricesCommand::Set(SetPrices { account, group, rules, once, asked }) => {
                let body = json!({"group": group, "rules": rules.read()?});
                let ask = AdminRequest::put(prices_of(&account)).with(body);
                asked.show(&ask.once(&once.id()), &ACCOUNT_PRICES)
            }
            PricesCommand::Group(SetGroup { name, rules, once, asked }) => {
                let ask = AdminRequest::put(format!("{GROUPS}/{}", encoded(&name)));
                let ask = ask.with(json!({"rules": rules.read()?}));
                asked.show(&ask.once(&once.id()), &PRICE_GROUP)
            }
            PricesCommand::Groups(asked) => asked.show(&AdminRequest::get(GROUPS), &PRICE_GROUPS),
            PricesCommand::Charged(ListCharged { pages, asked }) => {
                asked.list("/admin/v1/prices", &[], &pages, &CHARGED_PRICES)
            }
        }
    }
}

impl Rules {
    /// The rules as the admin API takes them.
    fn read(&self) -> anyhow::Result<Value> {
        if let Some(file) = &self.file {
            return read_file(file);
        }
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
