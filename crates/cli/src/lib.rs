//! Commands, one file each. `run` of a command returns its exit code, or the error that the program
//! prints: what the gateway refused or that it does not answer ([`exit`]).

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub mod serve;
mod demo;
mod check;
mod files;
mod schema;
mod sim;
mod ledger;
mod records;
mod reconcile;
mod backup;
mod route;
mod operator;
mod healthcheck;
mod config;
mod models;
mod accounts;
mod keys;
mod limit;
mod grants;
mod refunds;
mod write_offs;
mod tasks;
mod holds;
mod fleet;
mod upstreams;
mod repair;
mod prices;
mod trial_balance;
pub mod private;
mod requests;
mod codes;
mod audit;
mod archive;
mod output;
mod sheet;
mod sheets;
pub mod exit;
mod terminal;
mod completions;
mod migrate;
mod admin_call;
mod admin_tls;
pub mod admin_token;

pub use admin_call::callable;
pub use exit::report;

use serve::{Ready, Start};

/// An AI gateway that bills exactly: one address and one key in front of many model providers.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway until a signal ends it.
    Serve(serve::Serve),
    /// Run a gateway with simulated upstreams, an account, credit and a key.
    Demo(demo::Demo),
    /// Check routes.yaml and models.yaml, and report all errors.
    Check(check::Check),
    /// Inspect and reload the configuration of a running gateway.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Compare models with public price lists.
    #[command(subcommand)]
    Models(models::ModelsCommand),
    /// Print the JSON Schema of a configuration file.
    Schema(schema::Schema),
    /// Run simulated upstreams without a gateway.
    Sim(sim::SimCommand),
    /// Check the readiness of a running gateway: exits with 0 if it is ready.
    Healthcheck(healthcheck::Healthcheck),
    /// Manage customers' accounts.
    #[command(subcommand)]
    Accounts(accounts::AccountsCommand),
    /// Manage customers' API keys.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Grant credit to customers.
    #[command(subcommand)]
    Grants(grants::GrantsCommand),
    /// Refund charges of single calls.
    #[command(subcommand)]
    Refunds(refunds::RefundsCommand),
    /// Write off debts of accounts.
    #[command(subcommand)]
    WriteOffs(write_offs::WriteOffsCommand),
    /// Manage asynchronous tasks, such as video.
    #[command(subcommand)]
    Tasks(tasks::TasksCommand),
    /// Resolve holds that a crash left open.
    #[command(subcommand)]
    Holds(holds::HoldsCommand),
    /// Show the nodes of a fleet and their leases.
    Fleet(fleet::FleetArgs),
    /// Show the health of a running gateway's upstreams.
    Upstreams(upstreams::UpstreamsArgs),
    /// Manage customers' price rules and price groups.
    #[command(subcommand)]
    Prices(prices::PricesCommand),
    /// Manage codes that customers redeem for credit or sign up with.
    #[command(subcommand)]
    Codes(codes::CodesCommand),
    /// Show the audit log.
    Audit(audit::AuditArgs),
    /// List finished requests, or follow them as they end.
    #[command(subcommand)]
    Requests(requests::RequestsCommand),
    /// Explain the routing of requests in a running gateway.
    #[command(subcommand)]
    Route(route::RouteCommand),
    /// List, verify, export and repair the ledger.
    #[command(subcommand)]
    Ledger(ledger::LedgerCommand),
    /// Reconcile a provider's invoice with the ledger.
    Reconcile(reconcile::Reconcile),
    /// Back up the data directory of a gateway, which may be running.
    Backup(backup::Backup),
    /// Restore a data directory from a backup, optionally to a point in time.
    Restore(backup::Restore),
    /// Convert another gateway's configuration, update the schema of a fleet's database, or move a
    /// ledger into it.
    #[command(subcommand)]
    Migrate(migrate::MigrateCommand),
    /// Print a shell completion script.
    Completions(completions::Completions),
}

/// The parts of the program that commands need and that stand above this crate.
#[derive(Debug)]
pub struct Program {
    /// Runs a gateway until a signal ends it, and calls `Ready` once it takes requests.
    pub serve: fn(Start, Ready) -> anyhow::Result<ExitCode>,
    /// The OpenAPI document of the admin API.
    pub admin_openapi: fn() -> serde_json::Value,
}

impl Cli {
    /// Run the command.
    ///
    /// # Errors
    /// The error for the terminal.
    pub fn run(self, program: &Program) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Serve(command) => command.run(program),
            Command::Demo(command) => command.run(program),
            Command::Check(command) => command.run(),
            Command::Config(command) => command.run(),
            Command::Models(command) => command.run(),
            Command::Schema(command) => command.run(program),
            Command::Sim(command) => command.run(),
            Command::Healthcheck(command) => command.run(),
            Command::Route(command) => command.run(),
            Command::Ledger(command) => command.run(),
            Command::Reconcile(command) => command.run(),
            Command::Backup(command) => command.run(),
            Command::Restore(command) => command.run(),
            Command::Prices(command) => command.run(),
            Command::Codes(command) => command.run(),
            Command::Audit(command) => command.run(),
            Command::Requests(command) => command.run(),
            Command::Migrate(command) => command.run(),
            Command::Completions(command) => command.run(),
            Command::Upstreams(command) => command.run(),
            Command::Holds(command) => command.run(),
            Command::Fleet(command) => command.run(),
            Command::Tasks(command) => command.run(),
            Command::Refunds(command) => command.run(),
            Command::WriteOffs(command) => command.run(),
            Command::Grants(command) => command.run(),
            Command::Keys(command) => command.run(),
            Command::Accounts(command) => command.run(),
        }
    }
}
