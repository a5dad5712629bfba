//! `tollgate fleet`: the nodes of a fleet, and where its money is.

use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand};
use serde_json::json;

use super::admin_call::AdminRequest;
use super::asked::{IdempotencyOptions, OutputOptions, Pages};
use super::exit::{CODES, Failure, NOT_FOUND, REFUSED};
use super::operator::AdminOptions;
use super::sheets::{FLEET, LEASES, NODES, RESOLVED_SUSPENSE};

const PATH: &str = "/admin/v1/fleet";

/// The fleet that a running gateway is a node of: its money, and how this node is doing.
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
    asked: OutputOptions,
}

#[derive(Subcommand, Debug)]
enum FleetCommand {
    /// List the nodes.
    #[command(after_help = format!("\
Examples:
  tollgate fleet nodes

{CODES}"))]
    Nodes {
        #[command(flatten)]
        asked: OutputOptions,
    },
    /// List what nodes have out, by node and account.
    #[command(after_help = format!("\
Examples:
  tollgate fleet leases --node eu-2
  tollgate fleet leases --account acct_3f1c0a5b7d9e2468

{CODES}"))]
    Leases(Box<Leases>),
    /// List what nodes have out that have fallen silent.
    Suspense(Box<SuspenseArgs>),
}

#[derive(Args, Debug)]
struct Leases {
    /// Only what this node has out, by its name or number.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Only what nodes have out of this account.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    #[command(flatten)]
    pages: Pages,
    #[command(flatten)]
    asked: OutputOptions,
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
    /// Say what becomes of all that a silent node has out of an account. What still runs as that
    /// node is shut out with it. If the node comes back with its disk, this is undone.
    #[command(after_help = format!("\
Examples:
  tollgate fleet suspense resolve --node eu-2 --account acct_3f1c0a5b7d9e2468 --release --note 'disk lost'

{CODES}"))]
    Resolve(Box<ResolveSuspense>),
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("how").required(true).args(["release", "charge"])))]
struct ResolveSuspense {
    /// The silent node, by its name or number.
    #[arg(long, value_name = "NODE")]
    node: String,
    /// Whose money it is.
    #[arg(long, value_name = "ACCOUNT")]
    account: String,
    /// Give it back to the customer: the node has not spent it.
    #[arg(long)]
    release: bool,
    /// Count it as spent: the node has spent it, as far as can be known.
    #[arg(long)]
    charge: bool,
    /// What was found out.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    asked: OutputOptions,
}

impl FleetArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// What the gateway says, or that it says nothing.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            None => self.asked.show(&AdminRequest::get(PATH), &FLEET),
            Some(FleetCommand::Nodes { asked }) => asked.show(&AdminRequest::get(PATH), &NODES),
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
        let node = self.node.as_ref().map(|node| number(&self.asked.operator, node)).transpose()?;
        let node = node.map(|node| node.to_string());
        let query = [("node", node.as_deref()), ("account", self.account.as_deref())];
        self.asked.list(&format!("{PATH}/{what}"), &query, &self.pages, &LEASES)
    }
}

impl ResolveSuspense {
    fn run(self) -> anyhow::Result<ExitCode> {
        let how = if self.release { "release" } else { "charge" };
        let node = number(&self.asked.operator, &self.node)?;
        let id = self.once.id();
        let Self { account, note, .. } = self;
        let body = json!({"node": node, "account": account, "how": how, "note": note});
        let ask = AdminRequest::post(format!("{PATH}/suspense/resolve"));
        self.asked.show(&ask.with(body).once(&id), &RESOLVED_SUSPENSE)
    }
}

/// The number of a node that is meant by its name, or by its number. Nodes number themselves as they come,
/// so that the first may be called `node-2`.
fn number(operator: &AdminOptions, meant: &str) -> anyhow::Result<u16> {
    let fleet = operator.get(PATH)?;
    let nodes = fleet["nodes"].as_array().into_iter().flatten();
    let named = nodes.filter(|node| node["name"] == meant);
    let named: Vec<u64> = named.filter_map(|node| node["node"].as_u64()).collect();
    let refused = |code, message: String| {
        let help = Some("`tollgate fleet nodes` lists them".to_owned());
        Err(Failure { code, message, help }.into())
    };
    match named.as_slice() {
        [one] => Ok(u16::try_from(*one)?),
        [] => match meant.parse() {
            Ok(number) => Ok(number),
            Err(_) => refused(NOT_FOUND, format!("no node of the fleet is called {meant:?}")),
        },
        several => {
            let numbers: Vec<_> = several.iter().map(u64::to_string).collect();
            let numbers = numbers.join(", ");
            refused(REFUSED, format!("several nodes are called {meant:?}: say which by {numbers}"))
        }
    }
}
