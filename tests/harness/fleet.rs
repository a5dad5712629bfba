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

/// The treasury's row of an account, in nano-dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccountRow {
    pub(crate) granted: i64,
    pub(crate) available: i64,
    pub(crate) leased: i64,
    pub(crate) held: i64,
    pub(crate) spent: i64,
    pub(crate) suspense: i64,
    pub(crate) debt: i64,
    pub(crate) written_off: i64,
}

impl AccountRow {
    /// Reads it from the database. The parts must add up to the grants.
    pub(crate) fn of(server: &Postgres, database: &str, account: impl std::fmt::Display) -> Self {
        let row = server.sql(
            database,
            &format!(
                "SELECT granted, available, leased, held, spent, suspense, debt, written_off
                 FROM tollgate.accounts WHERE id = '{account}'"
            ),
        );
        let sums: Vec<i64> = row.split('|').map(|sum| sum.parse().expect("a sum")).collect();
        let [granted, available, leased, held, spent, suspense, debt, written_off] = sums[..]
        else {
            panic!("{account} has the row {row:?}")
        };
        assert_eq!(granted, available + leased + held + spent + suspense, "{row}");
        Self { granted, available, leased, held, spent, suspense, debt, written_off }
    }
}

/// Some nodes of one fleet.
pub(crate) struct InProcess {
    /// Their ledgers.
    pub(crate) ledgers: Vec<Arc<Ledger>>,
    members: Vec<Member>,
    following: Vec<JoinHandle<()>>,
}

impl InProcess {
    /// Makes the schema, and starts so many nodes.
    pub(crate) async fn start(url: &str, nodes: usize) -> Self {
        make_schema(url).await;
        let mut fleet = Self { ledgers: Vec::new(), members: Vec::new(), following: Vec::new() };
        for number in 0..nodes {
            fleet.join(url, &format!("node-{number}")).await;
        }
        fleet
    }

    /// Starts one more node.
    pub(crate) async fn join(&mut self, url: &str, name: &str) {
        let member = Member::join(url, name).await;
        self.following.push(tokio::spawn(node::follow::follow(Arc::clone(&member.ledger))));
        self.ledgers.push(Arc::clone(&member.ledger));
        self.members.push(member);
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
        for member in &self.members {
            member.stop.send_replace(true);
        }
        for member in &mut self.members {
            (&mut member.at_work).await.expect("no panic");
        }
        // A ledger that is closed follows nothing.
        self.following.iter().for_each(JoinHandle::abort);
        self.ledgers.iter().for_each(|ledger| ledger.close());
    }
}

/// A node in this process, over a directory of its own. Dropped, it stops.
pub(crate) struct Member {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) dir: TempDir,
    stop: watch::Sender<bool>,
    at_work: JoinHandle<()>,
}

impl Member {
    /// Joins with an empty directory.
    pub(crate) async fn join(url: &str, name: &str) -> Self {
        let dir = TempDir::new().expect("a directory");
        Self::join_in(url, name, dir, RecoveryPolicy::Void).await
    }

    /// Joins as the node of a directory. Calls that a crash left open there end by the policy.
    pub(crate) async fn join_in(
        url: &str,
        name: &str,
        dir: TempDir,
        policy: RecoveryPolicy,
    ) -> Self {
        let fleet = Fleet::open(node_options(url, name, dir.path()), None).await.expect("a node");
        let funds = Options::with_funds(dir.path(), Arc::clone(&fleet));
        let options = Options { disk_free_bytes_min: 0, ..funds };
        let (ledger, _) = Ledger::open(options).expect("the ledger");
        let joined = node::join(&fleet, &ledger, policy).await.expect("joins");
        let (stop, stopped) = watch::channel(false);
        Self { ledger, fleet, dir, stop, at_work: tokio::spawn(joined.run(stopped)) }
    }

    /// Sends nothing more to the treasury.
    pub(crate) async fn falls_silent(&mut self) {
        self.at_work.abort();
        let ended = (&mut self.at_work).await;
        assert!(ended.is_err_and(|error| error.is_cancelled()), "it was at work");
    }

    /// Stops in order: its leases go back.
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
