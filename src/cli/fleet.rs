//! `tollgate fleet`: the nodes of a fleet, and where its money is.

use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand};
use serde_json::json;

use super::admin_call::Ask;
use super::asked::{Asked, Once, Pages};
use super::exit::CODES;
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
    asked: Asked,
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
        asked: Asked,
    },
    /// List what nodes have out, by node and account.
    #[command(after_help = format!("\
Examples:
  tollgate fleet leases --node 2
  tollgate fleet leases --account acct_3f1c0a5b7d9e2468

{CODES}"))]
    Leases(Leases),
    /// List what nodes have out that have fallen silent.
    Suspense(SuspenseArgs),
}

#[derive(Args, Debug)]
struct Leases {
    /// Only what this node has out, by its number.
    #[arg(long, value_name = "NODE")]
    node: Option<u16>,
    /// Only what nodes have out of this account.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    #[command(flatten)]
    pages: Pages,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = format!("\
Examples:
  tollgate fleet suspense
  tollgate fleet suspense --node 2 --all --json

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
  tollgate fleet suspense resolve --node 2 --account acct_3f1c0a5b7d9e2468 --release --note 'disk lost'

{CODES}"))]
    Resolve(Resolve),
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("how").required(true).args(["release", "charge"])))]
struct Resolve {
    /// The silent node, by its number.
    #[arg(long, value_name = "NODE")]
    node: u16,
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
    once: Once,
    #[command(flatten)]
    asked: Asked,
}

impl FleetArgs {
    /// Runs the command and says with what to exit.
    ///
    /// # Errors
    /// What the gateway says, or that it says nothing.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            None => self.asked.show(&Ask::get(PATH), &FLEET),
            Some(FleetCommand::Nodes { asked }) => asked.show(&Ask::get(PATH), &NODES),
            Some(FleetCommand::Leases(leases)) => leases.list("leases"),
            Some(FleetCommand::Suspense(SuspenseArgs { command: None, leases })) => {
                leases.list("suspense")
            }
            Some(FleetCommand::Suspense(SuspenseArgs {
                command: Some(SuspenseCommand::Resolve(resolve)),
                ..
            })) => resolve.run(),
        }
    }
}

impl Leases {
    fn list(&self, what: &str) -> anyhow::Result<ExitCode> {
        let node = self.node.map(|node| node.to_string());
        let query = [("node", node.as_deref()), ("account", self.account.as_deref())];
        self.asked.list(&format!("{PATH}/{what}"), &query, &self.pages, &LEASES)
    }
}

impl Resolve {
    fn run(self) -> anyhow::Result<ExitCode> {
        let how = if self.release { "release" } else { "charge" };
        let id = self.once.id();
        let Self { node, account, note, .. } = self;
        let body = json!({"node": node, "account": account, "how": how, "note": note});
        let ask = Ask::post(format!("{PATH}/suspense/resolve"));
        self.asked.show(&ask.with(body).once(&id), &RESOLVED_SUSPENSE)
    }
}
