//! The commands, one file each.

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
mod asked;
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
    /// Run the gateway.
    Serve(serve::Serve),
    /// Run the gateway on simulated upstreams, with an account, credit and a key.
    Demo(demo::Demo),
    /// Check routes.yaml and models.yaml, and say everything that is wrong with them.
    Check(check::Check),
    /// The configuration of a running gateway.
    Config(config::ConfigArgs),
    /// Models, and what public lists say of their prices.
    Models(models::ModelsArgs),
    /// Print the JSON Schema of a configuration file.
    Schema(schema::Schema),
    /// Run the simulated upstreams alone.
    Sim(sim::SimCommand),
    /// Ask a running gateway whether it wants requests: exits with 0 if it does.
    Healthcheck(healthcheck::Healthcheck),
    /// Customers' accounts.
    Accounts(accounts::AccountsArgs),
    /// Customers' API keys.
    Keys(keys::KeysArgs),
    /// Credit for customers.
    Grants(grants::GrantsArgs),
    /// Charges that are given back.
    Refunds(refunds::RefundsArgs),
    /// Debts that are given up.
    WriteOffs(write_offs::WriteOffsArgs),
    /// Work that outlives its request, such as video.
    Tasks(tasks::TasksArgs),
    /// Money of calls that a crash left open.
    Holds(holds::HoldsArgs),
    /// The nodes of a fleet, and where its money is.
    Fleet(fleet::FleetArgs),
    /// How the upstreams of a running gateway are doing.
    Upstreams(upstreams::UpstreamsArgs),
    /// What customers pay in the place of the list, and what calls were charged by.
    Prices(prices::PricesArgs),
    /// Codes that customers redeem for credit, or sign up with.
    Codes(codes::CodesArgs),
    /// Who did what.
    Audit(audit::AuditArgs),
    /// What requests came to.
    Requests(requests::RequestsArgs),
    /// See which way requests go in a running gateway.
    Route(route::RouteArgs),
    /// The ledger: what happened to an account's money, checks and exports.
    Ledger(ledger::LedgerArgs),
    /// Hold what a provider says it billed against the journal, and say why they differ.
    Reconcile(reconcile::Reconcile),
    /// Copy the data directory of a gateway, which may be running.
    Backup(backup::Backup),
    /// Make a data directory of a backup, or of one as it was at some moment.
    Restore(backup::Restore),
    /// Make our two files of the configuration of another gateway, or the schema of a fleet's database.
    Migrate(migrate::MigrateArgs),
    /// Print what a shell needs to complete these commands.
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
    /// Runs the command.
    ///
    /// # Errors
    /// What stopped it, for the person at the terminal.
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
