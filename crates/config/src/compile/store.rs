//! `store`: the data directory, and the database of a fleet.

use std::path::PathBuf;
use std::time::Duration;

use super::DAY;
use super::{archive, check_name};
use crate::document::{Document, Fault};
use crate::snapshot::{Postgres, StorageSettings};
use crate::spans::DocumentPath;
use crate::{Overrides, raw};
use tollgate_options::database_url::Host;
use tollgate_options::ledger::{Pruning, RecoveryPolicy};
use tollgate_options::network::ProxyRules;
use tollgate_options::postgres::{PostgresOptions, TlsMode, authorities_of};

/// Maximum number of days for which files are kept: ten years.
const KEEP_DAYS_MAX: u16 = 3650;
/// Fewer lines than a single segment of the journal has are of little use.
const LINES_MIN: u64 = 16 << 20;
/// Minimum number of connections: one for the sync with the treasury and one for everything else.
const CONNECTIONS_MIN: u32 = 2;
/// Maximum number of connections, more than a common database server has for a whole fleet.
const CONNECTIONS_MAX: u32 = 1000;
/// A shorter lease ends while a stopped node keeps rows locked, or with a hiccup of the network.
const LEASE_MIN: Duration = Duration::from_secs(2);
/// Longest lease: a lost gateway is detected after twice this time, and nobody should wait longer for its
/// money.
const LEASE_MAX: Duration = Duration::from_secs(60);
/// The shortest time for which money is borrowed ahead.
const COVER_MIN: Duration = Duration::from_secs(1);
/// The longest: more would be out with each node than others find when they need it.
const COVER_MAX: Duration = Duration::from_secs(600);

/// Compiles valid settings, and reports the others.
pub(super) fn compile(
    document: &mut Document,
    raw: raw::StoreSection,
    overrides: &Overrides,
    proxies: &ProxyRules,
) -> StorageSettings {
    let at = DocumentPath::root().key("store");
    if raw.data_dir.is_empty() {
        let fault = Fault::at_value(&at.key("data_dir"), "the data directory has no name");
        document.note(fault.help("such as `data`"));
    }
    let recovery = match raw.recovery {
        raw::RecoveryMode::Void => RecoveryPolicy::Void,
        raw::RecoveryMode::Floor => RecoveryPolicy::Floor,
    };
    let data_dir = overrides.data_dir.clone().unwrap_or_else(|| PathBuf::from(raw.data_dir));
    let postgres = raw.postgres.map(|raw| postgres(document, &at.key("postgres"), raw));
    let archive = raw.journal.archive;
    let archive = archive.and_then(|raw| archive::compile(document, &at, raw, &data_dir, proxies));
    let pruning = pruning(document, &at.key("statements"), &raw.statements);
    StorageSettings { data_dir, recovery, postgres, archive, pruning }
}

fn pruning(document: &mut Document, at: &DocumentPath, raw: &raw::Statements) -> Pruning {
    if !(1..=KEEP_DAYS_MAX).contains(&raw.keep_days) {
        let fault = Fault::at_value(&at.key("keep_days"), "this is not a number of days");
        document.note(fault.help(format!("from 1 to {KEEP_DAYS_MAX}")));
    }
    let lines_max = raw.size_max.0 as u64;
    if lines_max < LINES_MIN {
        let fault = Fault::at_value(&at.key("size_max"), "this is too small for statements");
        document.note(fault.help("from `16MiB`"));
    }
    Pruning { keep: DAY * u32::from(raw.keep_days), lines_max, ..Pruning::default() }
}

pub(super) fn postgres(
    document: &mut Document,
    at: &DocumentPath,
    raw: raw::PostgresSection,
) -> Postgres {
    let is_here = raw.url.hosts.iter().all(Host::is_here);
    let tls = match raw.tls {
        Some(raw::DatabaseTls::VerifyFull) => TlsMode::VerifyFull,
        Some(raw::DatabaseTls::Disable) => TlsMode::Disable,
        // PostgreSQL packages have no certificate that clients trust; on this machine none is needed.
        None if is_here => TlsMode::Disable,
        None => TlsMode::VerifyFull,
    };
    if tls == TlsMode::Disable && !is_here {
        let message =
            "balances, password hashes and the password go over the network in clear text";
        let help = "take `tls: verify-full`, or see to it that nobody else is on that network";
        document.note(Fault::at_value(&at.key("tls"), message).warning().help(help));
    }
    if let Some(file) = &raw.ca_file {
        check_authorities(document, &at.key("ca_file"), file, tls);
    }
    if !(CONNECTIONS_MIN..=CONNECTIONS_MAX).contains(&raw.connections) {
        let fault = Fault::at_value(&at.key("connections"), "this is not a number of connections");
        document.note(fault.help(format!("from {CONNECTIONS_MIN} to {CONNECTIONS_MAX}")));
    }
    if !(LEASE_MIN..=LEASE_MAX).contains(&raw.lease.0) {
        let fault = Fault::at_value(&at.key("lease"), "no lease can be of this length");
        document.note(fault.help("from `2s` to `60s`"));
    }
    if let Some(cover) = &raw.cover
        && !(COVER_MIN..=COVER_MAX).contains(&cover.0)
    {
        let fault = Fault::at_value(&at.key("cover"), "money cannot be borrowed for so long ahead");
        document.note(fault.help("from `1s` to `10m`"));
    }
    if let Some(node) = &raw.node {
        check_name(document, &at.key("node"), node, "-_.");
    }
    let node = raw.node.unwrap_or_else(host_name);
    let password = raw.password.map(|password| password.0);
    let options = PostgresOptions {
        url: raw.url.text,
        password: password.filter(|password| !password.expose().is_empty()),
        tls,
        ca_file: raw.ca_file.map(|file| document.beside(&file)),
        connections_max: raw.connections as usize,
        application: format!("tollgate {node}"),
    };
    let lease = raw.lease.0;
    Postgres { options, node, lease, cover: raw.cover.map_or(lease, |cover| cover.0) }
}

fn check_authorities(document: &mut Document, at: &DocumentPath, file: &str, tls: TlsMode) {
    if tls == TlsMode::Disable {
        let fault = Fault::at_key(at, "without TLS there is no certificate to check");
        document.note(fault.help("add `tls: verify-full`, or remove this"));
    }
    if let Err(reason) = authorities_of(&document.beside(file)) {
        let message = format!("the authorities cannot be used: {reason}");
        let help = "a relative path begins at the directory of this YAML file";
        document.note(Fault::at_value(at, message).help(help));
    }
}

/// The machine's host name; a container's is its id.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = name.unwrap_or_default().trim().to_owned();
    if name.is_empty() { "node".to_owned() } else { name }
}
