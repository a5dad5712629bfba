//! `tollgate fleet`: nodes of a fleet and their leases.

use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand};
use serde_json::json;

use super::admin_call::AdminRequest;
use super::exit::{CODES, Failure, NOT_FOUND, REFUSED};
use super::operator::AdminOptions;
use super::output::{IdempotencyOptions, OutputOptions, PageOptions};
use super::sheets::{FLEET, LEASES, NODES, RESOLVED_SUSPENSE};

const PATH: &str = "/admin/v1/fleet";

/// Show the fleet of a running gateway: its money, and the state of this node.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = format!("\
Examples:
  tollgate fleet
  tollgate fleet --json | jq .money

{CODES}"))]
pub(super) struct FleetArgs {
    #[command(subcommand)]
    command: Option<FleetCommand>,
    #[command(flatten)]
    output: OutputOptions,
}

#[derive(Subcommand, Debug)]
enum FleetCommand {
    /// List the nodes of the fleet.
    #[command(after_help = format!("\
Examples:
  tollgate fleet nodes

{CODES}"))]
    Nodes {
        #[command(flatten)]
        output: OutputOptions,
    },
    /// List leases by node and account.
    #[command(after_help = format!("\
Examples:
  tollgate fleet leases --node eu-2
  tollgate fleet leases --account acct_3f1c0a5b7d9e2468

{CODES}"))]
    Leases(Box<Leases>),
    /// List leases of silent nodes.
    Suspense(Box<SuspenseArgs>),
}

#[derive(Args, Debug)]
struct Leases {
    /// Only leases of this node, by name or number.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Only leases of this account.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    #[command(flatten)]
    pages: PageOptions,
    #[command(flatten)]
    output: OutputOptions,
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = format!("\
Examples:
  tollgate fleet suspense
  tollgate fleet suspense --node eu-2 --all --json

{CODES}"))]
struct SuspenseArgs {
    #[command(subcommand)]
    command: Option<SuspenseCommand>,
    #[command(flatten)]
    leases: Leases,
}

#[derive(Subcommand, Debug)]
enum SuspenseCommand {
    /// Resolve a silent node's lease of an account, and fence the node. If the node returns with its
    /// disk, this is undone.
    #[command(after_help = format!("\
Examples:
  tollgate fleet suspense resolve --node eu-2 --account acct_3f1c0a5b7d9e2468 --release --note 'disk lost'

{CODES}"))]
    Resolve(Box<ResolveSuspense>),
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("how").required(true).args(["release", "charge"])))]
struct ResolveSuspense {
    /// Silent node, by name or number.
    #[arg(long, value_name = "NODE")]
    node: String,
    /// Id of the account.
    #[arg(long, value_name = "ACCOUNT")]
    account: String,
    /// Return the money to the customer: the node has not spent it.
    #[arg(long)]
    release: bool,
    /// Count the money as spent: the node probably spent it.
    #[arg(long)]
    charge: bool,
    /// Note on the findings.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    output: OutputOptions,
}

impl FleetArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            None => self.output.show(&AdminRequest::get(PATH), &FLEET),
            Some(FleetCommand::Nodes { output }) => output.show(&AdminRequest::get(PATH), &NODES),
            Some(FleetCommand::Leases(leases)) => leases.list("leases"),
            Some(FleetCommand::Suspense(suspense)) => match suspense.command {
                None => suspense.leases.list("suspense"),
                Some(SuspenseCommand::Resolve(resolve)) => resolve.run(),
            },
        }
    }
}

impl Leases {
    fn list(&self, what: &str) -> anyhow::Result<ExitCode> {
        let node =
            self.node.as_ref().map(|node| number(&self.output.operator, node)).transpose()?;
        let node = node.map(|node| node.to_string());
        let query = [("node", node.as_deref()), ("account", self.account.as_deref())];
        self.output.list(&format!("{PATH}/{what}"), &query, &self.pages, &LEASES)
    }
}

impl ResolveSuspense {
    fn run(self) -> anyhow::Result<ExitCode> {
        let how = if self.release { "release" } else { "charge" };
        let node = number(&self.output.operator, &self.node)?;
        let id = self.once.id();
        let Self { account, note, .. } = self;
        let body = json!({"node": node, "account": account, "how": how, "note": note});
        let ask = AdminRequest::post(format!("{PATH}/suspense/resolve"));
        self.output.show(&ask.with(body).once(&id), &RESOLVED_SUSPENSE)
    }
}

/// Resolve a node's name or number to its number. Nodes are numbered in order of arrival, so the first
/// may be named `node-2`.
fn number(operator: &AdminOptions, name_or_number: &str) -> anyhow::Result<u16> {
    let fleet = operator.get(PATH)?;
    let nodes = fleet["nodes"].as_array().into_iter().flatten();
    // Names first: a node may be called `2`.
    let named = nodes.filter(|node| node["name"] == name_or_number);
    let named: Vec<u64> = named.filter_map(|node| node["node"].as_u64()).collect();
    let refused = |code, message: String| {
        let help = Some("`tollgate fleet nodes` lists them".to_owned());
        Err(Failure { code, message, help }.into())
    };
    match named.as_slice() {
        [one] => Ok(u16::try_from(*one)?),
        [] => match name_or_number.parse() {
            Ok(number) => Ok(number),
            Err(_) => {
                refused(NOT_FOUND, format!("no node of the fleet is called {name_or_number:?}"))
            }
        },
        several => {
            let numbers: Vec<_> = several.iter().map(u64::to_string).collect();
            let numbers = numbers.join(", ");
            refused(
                REFUSED,
                format!("several nodes are called {name_or_number:?}: say which by {numbers}"),
            )
        }
    }
}
