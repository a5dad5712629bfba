//! The field `store` of `routes.yaml`.

use std::time::Duration;

use schemars::JsonSchema;

use crate::config::database_url::DatabaseUrl;
use crate::config::scalar::{Period, SecretText};

/// Where the ledger is kept.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Store {
    /// The directory of the ledger, for one process at a time. Default: `data`.
    pub(in crate::config) data_dir: String,
    /// What becomes of calls that a crash left open. Default: `void`.
    pub(in crate::config) recovery: Recovery,
    /// The database of a fleet: several gateways that spend the same money. Default: none, and this
    /// gateway is the only one.
    pub(in crate::config) postgres: Option<Postgres>,
}

impl Default for Store {
    fn default() -> Self {
        Self { data_dir: "data".to_owned(), recovery: Recovery::Void, postgres: None }
    }
}

/// What becomes of calls that a crash left open.
#[derive(Clone, Copy, Debug, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(title = "a way of recovery", inline)]
pub(in crate::config) enum Recovery {
    /// The customer pays nothing.
    Void,
    /// The customer pays the least that the call must have cost: its estimated input.
    Floor,
}

/// The database of a fleet, and this gateway's place in it.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Postgres {
    /// Where the database is, without a password. Of several hosts with commas between them, the one
    /// that takes writes is used.
    pub(in crate::config) url: DatabaseUrl,
    /// The user's password. Default: none is given.
    pub(in crate::config) password: Option<SecretText>,
    /// Whether the connection is encrypted. Default: `verify-full`, or `disable` for a database on this
    /// machine.
    pub(in crate::config) tls: Option<DatabaseTls>,
    /// The authorities whose certificates the server may prove its name with, as PEM. Default: those
    /// that this machine trusts.
    pub(in crate::config) ca_file: Option<String>,
    /// The most connections at one time, beside the one that listens. Default: `10`.
    #[serde(default = "connections")]
    pub(in crate::config) connections: u32,
    /// What operators call this gateway. Default: the name of the machine.
    pub(in crate::config) node: Option<String>,
    /// How long this gateway goes on when it cannot reach the database, from `2s` to `60s`. All of a
    /// fleet have the same. Default: `10s`.
    #[serde(default = "lease")]
    pub(in crate::config) lease: Period,
}

fn connections() -> u32 {
    10
}

fn lease() -> Period {
    Period(Duration::from_secs(10))
}

/// Whether the connection to the database is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a way to connect", inline)]
pub(in crate::config) enum DatabaseTls {
    /// It is, and the server proves its name.
    VerifyFull,
    /// It is not.
    Disable,
}
