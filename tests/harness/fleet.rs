//! Nodes of a fleet inside a test's process, on a real database.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollgate::fleet::postgres::{Db, PostgresOptions, TlsMode, migrate};
use tollgate::fleet::{Fleet, FleetOptions, node};
use tollgate::ledger::{
    AccountId, KeyId, Ledger, Options, RecoveryPolicy, RequestId, Reserve, Settlement,
};
use tollgate::money::Nanousd;
use tollgate::price::{Usage, UsageSource};

use super::postgres::Postgres;

/// So many nano-dollars.
pub(crate) fn money(nanousd: i64) -> Nanousd {
    Nanousd::new(nanousd)
}

/// A call that can cost so much.
pub(crate) fn reserve(account: AccountId, amount: i64) -> Reserve {
    Reserve {
        account,
        key: KeyId::from_number(7),
        model: "model-a".into(),
        price: None,
        request: RequestId::new(),
        amount: money(amount),
        floor: money(1),
    }
}

/// Settlement of a call with this charge.
pub(crate) fn cost(nanousd: i64) -> Settlement {
    let usage = Usage { input_tokens: 3, output_tokens: 5, ..Usage::default() };
    Settlement { charge: money(nanousd), usage, source: UsageSource::Upstream }
}

/// How to reach a database of the harness.
pub(crate) fn options(url: &str) -> PostgresOptions {
    PostgresOptions {
        url: url.to_owned(),
        password: None,
        tls: TlsMode::Disable,
        ca_file: None,
        connections_max: 6,
        application: "tollgate-test".to_owned(),
    }
}

/// A node with this name and directory, whose lease lasts ten seconds.
pub(crate) fn node_options(url: &str, name: &str, dir: &Path) -> FleetOptions {
    FleetOptions {
        postgres: options(url),
        name: name.to_owned(),
        term: Duration::from_secs(10),
        cover: Duration::from_secs(10),
        data_dir: dir.to_owned(),
    }
}

/// A new database with the schema, on the server that the tests of a file share: its name, and where
/// it is.
pub(crate) async fn database(name: &str) -> (String, String) {
    let (name, url) = Postgres::shared().database(name);
    make_schema(&url).await;
    (name, url)
}

/// Makes the schema of a fleet in a database.
pub(crate) async fn make_schema(url: &str) {
    let db = Db::for_migrations(&options(url)).await.expect("the database");
    migrate::up(&db).await.expect("the schema");
}

/// Some nodes of one fleet.
pub(crate) struct InProcess {
    /// Their ledgers.
    pub(crate) ledgers: Vec<Arc<Ledger>>,
    dirs: Vec<TempDir>,
    stop: watch::Sender<bool>,
    at_work: Vec<JoinHandle<()>>,
    following: Vec<JoinHandle<()>>,
}

impl InProcess {
    /// Makes the schema, and starts so many nodes.
    pub(crate) async fn start(url: &str, nodes: usize) -> Self {
        make_schema(url).await;
        let (stop, _) = watch::channel(false);
        let (ledgers, dirs, at_work) = (Vec::new(), Vec::new(), Vec::new());
        let mut fleet = Self { ledgers, dirs, stop, at_work, following: Vec::new() };
        for number in 0..nodes {
            fleet.join(url, &format!("node-{number}")).await;
        }
        fleet
    }

    /// Starts one more node.
    pub(crate) async fn join(&mut self, url: &str, name: &str) {
        let dir = TempDir::new().expect("a directory");
        let fleet =
            Fleet::open(node_options(url, name, dir.path()), None).await.expect("the fleet");
        let options = Options::with_funds(dir.path(), Arc::clone(&fleet));
        let (ledger, _) = Ledger::open(options).expect("the ledger");
        let joined = node::join(&fleet, &ledger, RecoveryPolicy::Void).await.expect("joins");
        self.at_work.push(tokio::spawn(joined.run(self.stop.subscribe())));
        self.following.push(tokio::spawn(node::follow::follow(Arc::clone(&ledger))));
        self.ledgers.push(ledger);
        self.dirs.push(dir);
    }

    /// A new account with so much money, which all nodes know.
    pub(crate) async fn account_with(&self, nanousd: i64) -> AccountId {
        let first = &self.ledgers[0];
        let account = first.create_account("test").await.expect("an account").id;
        first.grant(account, "initial", money(nanousd)).await.expect("a grant");
        for ledger in &self.ledgers {
            ledger.catch_up().await.expect("follows");
        }
        account
    }

    /// Stops all nodes; what they have goes back.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        for at_work in self.at_work.drain(..) {
            at_work.await.expect("no panic");
        }
        self.following.iter().for_each(JoinHandle::abort);
        for ledger in &self.ledgers {
            ledger.close();
        }
    }
}

/// A node over a directory of the test's, which can die and come back.
pub(crate) struct OneNode {
    /// Its ledger.
    pub(crate) ledger: Arc<Ledger>,
    stop: watch::Sender<bool>,
    at_work: JoinHandle<()>,
}

impl OneNode {
    /// Joins as the node of a directory. What a crash left open there is charged its floor. Dropped, it
    /// stops.
    pub(crate) async fn join(url: &str, dir: &Path) -> Self {
        let fleet = Fleet::open(node_options(url, "another", dir), None).await.expect("the fleet");
        let options = Options::with_funds(dir, Arc::clone(&fleet));
        let (ledger, _) = Ledger::open(options).expect("the ledger");
        let joined = node::join(&fleet, &ledger, RecoveryPolicy::Floor).await.expect("joins");
        let (stop, stopped) = watch::channel(false);
        Self { ledger, stop, at_work: tokio::spawn(joined.run(stopped)) }
    }

    /// Says nothing more to the treasury.
    pub(crate) async fn falls_silent(&mut self) {
        self.at_work.abort();
        let ended = (&mut self.at_work).await;
        assert!(ended.is_err_and(|error| error.is_cancelled()), "it was at work");
    }

    /// Stops: what it has goes back.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        self.at_work.await.expect("no panic");
        self.ledger.close();
    }
}

/// Takes a node's directory as a crash would leave it.
pub(crate) fn copied(from: &Path) -> TempDir {
    let to = TempDir::new().expect("a directory");
    let from = format!("{}/.", from.display());
    let copied = Command::new("cp").args(["-r", &from]).arg(to.path()).status();
    assert!(copied.expect("cp runs").success());
    to
}
