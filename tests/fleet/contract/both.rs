//! The rules and the database side by side.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate::clock::UnixMs;
use tollgate::fleet::lease::{Loan, LoanRequest, SyncRefusal, SyncRequest, SyncResponse};
use tollgate::fleet::postgres::Db;
use tollgate::fleet::postgres::directory::DirectoryAppend;
use tollgate::fleet::treasury::{AccountFunds, SuspenseRelease, Treasury};
use tollgate::ledger::{
    AccountId, FleetHistory, JournaledRecord, NodeId, Record, Seq, SuspenseEnd,
};
use tollgate::ledger::{LeaseReport, LeaseSettlement};
use tollgate::money::Nanousd;

use crate::harness::fleet::{make_schema, options};

/// Longer than any seed takes: a node falls silent only when it is made to.
pub(crate) const TERM: Duration = Duration::from_secs(1_000);
const ACCOUNTS: u64 = 4;
/// The number of an account that does not exist.
const UNKNOWN_ACCOUNT: u64 = ACCOUNTS + 1;

pub(crate) fn usd(nanousd: i64) -> Nanousd {
    Nanousd::new(nanousd)
}

pub(crate) fn account(number: u64) -> AccountId {
    AccountId::from_number(number)
}

pub(crate) fn loan_request(number: u64, least: i64, most: i64) -> LoanRequest {
    LoanRequest { account: account(number), least: usd(least), most: usd(most) }
}

/// Makes the schema in a new database.
pub(crate) async fn schema(url: &str) -> Db {
    make_schema(url).await;
    Db::connect(&options(url), None).await.expect("the database")
}

/// An account's row in the database.
pub(crate) async fn funds(db: &Db, account: AccountId) -> Option<AccountFunds> {
    let sql = "SELECT granted, available, leased, held, spent, suspense, debt, written_off, credit
        FROM tollgate.accounts WHERE id = $1";
    let rows = db.query(sql, &[&account.to_string()]).await.expect("rows");
    let row = rows.first()?;
    let amount = |column: usize| usd(row.get(column));
    Some(AccountFunds {
        granted: amount(0),
        available: amount(1),
        leased: amount(2),
        held: amount(3),
        spent: amount(4),
        suspense: amount(5),
        debt: amount(6),
        written_off: amount(7),
        credit: amount(8),
    })
}

/// Counts of each event, so that a suite that does nothing is noticed.
#[derive(Debug, Default)]
pub(crate) struct Doings {
    lent: u32,
    short: u32,
    recalled: u32,
    repeated: u32,
    superseded: u32,
    out_of_order: u32,
    unknown: u32,
    unsound: u32,
    cleared: u32,
    suspended: u32,
    resumed: u32,
    resolved: u32,
    /// Charged suspense that was lent again,
    charged_undone: u32,
    /// and so was what had been released,
    released_undone: u32,
    /// or some of it.
    released_lost: u32,
}

impl Doings {
    /// Counts what an exchange of a node undoes.
    fn undone(&mut self, before: &Treasury, node: NodeId) {
        for (id, funds) in before.accounts() {
            let SuspenseRelease { released, charged } = before.resolved(node, id);
            self.charged_undone += u32::from(charged > Nanousd::ZERO);
            let is_lost = released > funds.available;
            self.released_lost += u32::from(is_lost);
            self.released_undone += u32::from(released > Nanousd::ZERO && !is_lost);
        }
    }

    /// A suite that does not come to something proves nothing of it.
    pub(crate) fn are_all_there(&self) {
        let all = [
            self.lent,
            self.short,
            self.recalled,
            self.repeated,
            self.superseded,
            self.out_of_order,
            self.unknown,
            self.unsound,
            self.cleared,
            self.suspended,
            self.resumed,
            self.resolved,
            self.charged_undone,
            self.released_undone,
            self.released_lost,
        ];
        assert!(all.iter().all(|times| *times > 0), "something never happened: {self:?}");
    }
}

/// A node's own balances.
#[derive(Clone, Debug, Default)]
struct NodeStatus {
    epoch: u64,
    turn: u64,
    reported: Seq,
    last: Option<SyncRequest>,
}

pub(crate) struct Both {
    db: Db,
    pub(crate) rules: Treasury,
    /// The time of the rules. The database has its own, which nothing here waits for.
    pub(crate) now: Duration,
    pub(crate) rng: fastrand::Rng,
    nodes: BTreeMap<NodeId, NodeStatus>,
    seed: u64,
    /// The last place of the directory.
    head: Seq,
    /// Charges that nodes have reported, as statements show them.
    charged: BTreeMap<AccountId, i64>,
}

impl Both {
    pub(crate) fn new(db: Db) -> Self {
        Self {
            db,
            rules: Treasury::default(),
            now: Duration::from_secs(1),
            rng: fastrand::Rng::with_seed(0),
            nodes: BTreeMap::new(),
            seed: 0,
            head: 0,
            charged: BTreeMap::new(),
        }
    }

    /// Begins anew, with accounts and without nodes.
    pub(crate) async fn begin(&mut self, seed: u64) {
        let head = self.head;
        *self = Self::new(self.db.clone());
        (self.rng, self.seed, self.head) = (fastrand::Rng::with_seed(seed), seed, head);
        self.sql("DELETE FROM tollgate.leases").await;
        self.sql("DELETE FROM tollgate.resolved").await;
        self.sql("DELETE FROM tollgate.entries").await;
        self.sql("DELETE FROM tollgate.recalls").await;
        self.sql("DELETE FROM tollgate.nodes").await;
        self.sql("DELETE FROM tollgate.accounts").await;
        for number in 1..=ACCOUNTS {
            self.grant(number, [0, 40, 1_000, 100_000][usize::try_from(number - 1).expect("few")])
                .await;
        }
    }

    async fn sql(&self, sql: &str) {
        let done = self.db.transact(|tx| Box::pin(tx.batch(sql))).await;
        done.expect("a statement of the test");
    }

    pub(crate) async fn grant(&mut self, number: u64, amount: i64) {
        let id = account(number);
        let debt = |rules: &Treasury| rules.funds(id).map_or(0, |funds| funds.debt.get());
        let before = debt(&self.rules);
        self.rules.grant(id, usd(amount));
        // It is no write of the directory, so what it pays has no line.
        *self.charged.entry(id).or_default() += before - debt(&self.rules);
        self.sql(&format!(
            "INSERT INTO tollgate.accounts (id, name, created_at) VALUES ('{id}', 'test', 0)
             ON CONFLICT (id) DO NOTHING;
             UPDATE tollgate.accounts
             SET granted = granted + {amount}, available = available + {amount} - LEAST(debt, {amount}),
                 spent = spent + LEAST(debt, {amount}), debt = debt - LEAST(debt, {amount})
             WHERE id = '{id}'"
        ))
        .await;
    }

    pub(crate) async fn add_node(&mut self) -> NodeId {
        let node = self.db.new_node("test").await.expect("asked").expect("a node");
        self.join(node).await;
        node
    }

    async fn join(&mut self, node: NodeId) {
        let joined = self.db.join(node, "test", "test").await.expect("an answer").expect("a node");
        assert_eq!(joined, self.rules.join(node), "where {node} stands");
        let standing = self.nodes.entry(node).or_default();
        standing.epoch = joined.epoch;
        standing.turn = joined.turn;
        standing.reported = joined.reported;
    }

    /// Does one thing to both.
    pub(crate) async fn step(&mut self, did: &mut Doings) {
        self.now += Duration::from_millis(1);
        let node = self.any_node();
        let is_resolved = |node: &NodeId| {
            (1..=ACCOUNTS)
                .any(|of| self.rules.resolved(*node, account(of)) != SuspenseRelease::default())
        };
        let resolved = self.nodes.keys().copied().find(is_resolved);
        let what = match self.rng.u32(0..26) {
            0 | 1 if self.nodes.len() < 4 => {
                let node = self.add_node().await;
                format!("{node} is new")
            }
            2 => {
                let Some(node) = node else { return };
                self.join(node).await;
                format!("{node} joins")
            }
            3 => {
                let (number, amount) = (self.rng.u64(1..=ACCOUNTS), self.rng.i64(1..500));
                self.grant(number, amount).await;
                format!("{amount} to account {number}")
            }
            4 | 5 => self.sweep(did).await,
            6 => self.resolve(did).await,
            20..23 => {
                let Some(node) = node else { return };
                self.falls_silent(node, did).await
            }
            23.. if resolved.is_some() => {
                // It comes back, and is heard of at once.
                let node = resolved.expect("one of them");
                self.join(node).await;
                let sync = self.good_sync(node);
                self.send(sync, TERM, did).await
            }
            7 => {
                // What was recalled a second ago is so no more.
                self.now += Duration::from_secs(2);
                self.sql("DELETE FROM tollgate.recalls").await;
                "a second goes by".to_owned()
            }
            _ => self.sync(node, did).await,
        };
        // Recalls end by the rules' time only.
        self.sql("UPDATE tollgate.recalls SET until = now() + interval '1 hour'").await;
        self.compare(&what).await;
    }

    fn any_node(&mut self) -> Option<NodeId> {
        let count = self.nodes.len().max(1);
        self.nodes.keys().nth(self.rng.usize(0..count)).copied()
    }

    async fn sweep(&mut self, did: &mut Doings) -> String {
        let swept = self.db.sweep().await.expect("an answer");
        let was: Vec<_> = self.nodes.keys().map(|id| self.rules.is_suspended(*id)).collect();
        self.rules.sweep(self.now);
        let now = self.nodes.keys().zip(was);
        let expected: Vec<_> = now
            .filter(|(id, was)| !was && self.rules.is_suspended(**id))
            .map(|(id, _)| *id)
            .collect();
        assert_eq!(swept, expected, "nodes that have fallen silent");
        did.suspended += u32::from(!swept.is_empty());
        format!("a sweep takes {swept:?}")
    }

    async fn resolve(&mut self, did: &mut Doings) -> String {
        let out = self.nodes.keys().flat_map(|node| (1..=ACCOUNTS).map(|of| (*node, account(of))));
        let mut out: Vec<_> = out.collect();
        // Most often where there is something.
        if self.rng.u32(0..5) > 0 {
            out.retain(|(node, id)| {
                self.rules.is_suspended(*node) && !self.rules.leased(*node, *id).is_zero()
            });
        }
        if out.is_empty() {
            return "nothing to resolve".to_owned();
        }
        let (node, id) = out[self.rng.usize(0..out.len())];
        let was_spent = self.rng.bool();
        let amount = self.rules.leased(node, id);
        let took = self.rules.resolve(node, id, was_spent);
        let end = if was_spent { SuspenseEnd::Charge } else { SuspenseEnd::Release };
        let (note, at) = (String::new(), UnixMs(1));
        let record = Record::SuspenseResolved { account: id, node, amount, end, note, at };
        let write = format!("{}-{}", self.seed, self.head);
        let written = self.db.append(self.head, &write, &[record]).await.expect("an answer");
        match written {
            DirectoryAppend::At(seq) => {
                self.head = seq;
                assert!(took > Nanousd::ZERO, "the rules have nothing of it in suspense");
            }
            _ => assert_eq!(took, Nanousd::ZERO, "the database refuses what the rules do"),
        }
        did.resolved += u32::from(!took.is_zero());
        format!("{took} of {node} and {id} is resolved, spent: {was_spent}")
    }

    async fn sync(&mut self, node: Option<NodeId>, did: &mut Doings) -> String {
        let sync = self.any_sync(node);
        // With no term at all it falls silent at once.
        let term = if self.rng.u32(0..4) == 0 { Duration::ZERO } else { TERM };
        self.send(sync, term, did).await
    }

    /// A node borrows and falls silent, and an operator resolves some of what it has. Another may borrow
    /// all that there is then.
    async fn falls_silent(&mut self, node: NodeId, did: &mut Doings) -> String {
        let sync = SyncRequest { is_clear: false, ..self.good_sync(node) };
        let mut what = vec![self.send(sync, Duration::ZERO, did).await];
        what.push(self.sweep(did).await);
        what.push(self.resolve(did).await);
        if let Some(other) = self.any_node().filter(|other| *other != node) {
            let mut sync = self.good_sync(other);
            let all = self.rules.accounts().map(|(id, funds)| (id, funds.available));
            let all = all.filter(|(_, available)| *available > Nanousd::ZERO);
            let all = all.map(|(account, all)| LoanRequest { account, least: all, most: all });
            sync.requests = all.collect();
            what.push(self.send(sync, TERM, did).await);
        }
        what.join("; ")
    }

    async fn send(&mut self, sync: SyncRequest, term: Duration, did: &mut Doings) -> String {
        let was_suspended = self.rules.is_suspended(sync.node);
        let before = self.rules.clone();
        let expected = self.rules.sync(&sync, self.now, term);
        let mut answer = self.db.sync(&sync, term).await.expect("an answer");
        // The rules know nothing of the directory.
        if let Ok(answer) = &mut answer {
            answer.directory = 0;
        }
        assert_eq!(answer, expected, "to {sync:?}");
        let standing = self.nodes.get(&sync.node);
        match &answer {
            Ok(_) if standing.is_some_and(|it| it.last.as_ref() == Some(&sync)) => {
                did.repeated += 1;
            }
            Ok(answer) => {
                did.cleared += u32::from(sync.is_clear);
                did.resumed += u32::from(was_suspended);
                did.undone(&before, sync.node);
                did.recalled += u32::from(!answer.recalled.is_empty());
                for (_, loan) in &answer.loans {
                    let counter = match loan {
                        Loan::Lent(_) => &mut did.lent,
                        Loan::Shortage(_) => &mut did.short,
                    };
                    *counter += 1;
                }
                self.took(sync.node, &sync, answer);
            }
            Err(SyncRefusal::UnknownNode) => did.unknown += 1,
            Err(SyncRefusal::Superseded) => did.superseded += 1,
            Err(SyncRefusal::OutOfOrder { .. }) => did.out_of_order += 1,
            Err(SyncRefusal::Unsound(_)) => did.unsound += 1,
        }
        format!("{sync:?} is answered {answer:?}")
    }

    /// An exchange was taken.
    pub(crate) fn took(&mut self, node: NodeId, sync: &SyncRequest, _: &SyncResponse) {
        let standing = self.nodes.entry(node).or_default();
        standing.turn = sync.turn;
        standing.reported = sync.report.as_ref().map_or(standing.reported, |report| report.to);
        standing.last = Some(sync.clone());
        for settled in sync.report.iter().flat_map(|report| &report.settled) {
            *self.charged.entry(settled.account).or_default() += settled.charged.get();
        }
    }

    /// The next exchange of a node, which is in order.
    pub(crate) fn good_sync(&mut self, node: NodeId) -> SyncRequest {
        let standing = self.nodes.get(&node).cloned().unwrap_or_default();
        let reports = self.rng.u32(0..4) > 0;
        let report = reports.then(|| self.report(node, standing.reported));
        let mut requests = Vec::new();
        for number in 1..=ACCOUNTS {
            if self.rng.bool() {
                continue;
            }
            let least = if self.rng.bool() { 0 } else { self.rng.i64(1..60) };
            requests.push(loan_request(number, least, least + self.rng.i64(0..300)));
        }
        let (epoch, turn) = (standing.epoch, standing.turn + 1);
        SyncRequest { node, epoch, turn, report, is_clear: self.rng.u32(0..10) == 0, requests }
    }

    fn report(&mut self, node: NodeId, from: Seq) -> LeaseReport {
        let mut settled = Vec::new();
        for number in 1..=ACCOUNTS {
            if self.rng.bool() {
                continue;
            }
            // Now and then more than there is: an operator has resolved some of it.
            let lease = self.rules.leased(node, account(number)).get();
            let over = if self.rng.u32(0..10) == 0 { 50 } else { 0 };
            let charged = self.rng.i64(0..=lease + over);
            let returned = self.rng.i64(0..=(lease - charged).max(0) + over);
            settled.push(LeaseSettlement {
                account: account(number),
                charged: usd(charged),
                owed: usd(if self.rng.u32(0..4) == 0 { self.rng.i64(1..40) } else { 0 }),
                written_off: usd(if self.rng.u32(0..5) == 0 { 7 } else { 0 }),
                returned: usd(returned),
            });
        }
        LeaseReport {
            from,
            to: from + self.rng.u64(1..100),
            settled,
            history: FleetHistory::default(),
        }
    }

    /// Most often a good one; else one that is repeated, or that something is wrong with.
    fn any_sync(&mut self, node: Option<NodeId>) -> SyncRequest {
        let unknown = NodeId::from_number(1_000).expect("a node");
        let mut sync = self.good_sync(node.unwrap_or(unknown));
        let last = node.and_then(|node| self.nodes[&node].last.clone());
        match (self.rng.u32(0..16), last) {
            (0 | 1, Some(last)) => return last,
            (2, _) => sync.turn += 1,
            (3, _) => sync.turn = sync.turn.saturating_sub(2),
            (4, _) => sync.epoch = sync.epoch.saturating_sub(1),
            (5, _) => {
                if let Some(report) = &mut sync.report {
                    report.from += 1;
                }
            }
            (6, _) => sync.requests.push(loan_request(UNKNOWN_ACCOUNT, 1, 2)),
            (7, _) => sync.node = unknown,
            _ => {}
        }
        sync
    }

    /// Spending of an account by statement lines other than calls.
    async fn of_lines(&self, id: AccountId) -> i64 {
        let sql = "SELECT bytes FROM tollgate.entries WHERE account = $1";
        let rows = self.db.query(sql, &[&id.to_string()]).await.expect("rows");
        let lines =
            rows.iter().map(|row| match postcard::from_bytes(row.get(0)).expect("a line") {
                JournaledRecord {
                    record: Record::SuspenseResolved { amount, end, .. }, ..
                } => match end {
                    SuspenseEnd::Charge => amount.get(),
                    SuspenseEnd::Release => -amount.get(),
                },
                JournaledRecord { record: Record::DebtPaid { amount, .. }, .. } => amount.get(),
                line => panic!("{line:?}"),
            });
        lines.sum()
    }

    /// Both have the same rows and leases.
    pub(crate) async fn compare(&self, after: &str) {
        for (id, expected) in self.rules.accounts() {
            assert!(expected.is_sound(), "{id} after {after}: {expected:?}");
            let found = funds(&self.db, id).await;
            assert_eq!(found.as_ref(), Some(expected), "{id} after: {after}");
        }
        for (id, funds) in self.rules.accounts() {
            let lines = self.of_lines(id).await + self.charged.get(&id).copied().unwrap_or(0);
            assert_eq!(lines, funds.spent.get(), "the statement of {id} after: {after}");
        }
        let sql = "SELECT node, account, amount FROM tollgate.leases WHERE amount > 0
            ORDER BY node, account";
        let rows = self.db.query(sql, &[]).await.expect("rows");
        let found: Vec<(i32, String, i64)> =
            rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
        let ids = self.nodes.keys();
        let all = ids.flat_map(|node| (1..=ACCOUNTS).map(|number| (*node, account(number))));
        let leases = all.map(|(node, id)| {
            (i32::from(node.number()), id.to_string(), self.rules.leased(node, id).get())
        });
        let expected: Vec<_> = leases.filter(|(.., amount)| *amount > 0).collect();
        assert_eq!(found, expected, "leases after: {after}");
        let sql = "SELECT node, account, released, charged FROM tollgate.resolved
            ORDER BY node, account";
        let rows = self.db.query(sql, &[]).await.expect("rows");
        let found: Vec<(i32, String, i64, i64)> =
            rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect();
        let ids = self.nodes.keys();
        let all = ids.flat_map(|node| (1..=ACCOUNTS).map(|number| (*node, account(number))));
        let resolved = all.map(|(node, id)| {
            let SuspenseRelease { released, charged } = self.rules.resolved(node, id);
            (i32::from(node.number()), id.to_string(), released.get(), charged.get())
        });
        let expected: Vec<_> = resolved.filter(|(.., r, c)| (*r, *c) != (0, 0)).collect();
        assert_eq!(found, expected, "what is resolved after: {after}");
        let sql = "SELECT id FROM tollgate.nodes WHERE suspended_at IS NOT NULL ORDER BY id";
        let rows = self.db.query(sql, &[]).await.expect("rows");
        let found: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
        let ids = self.nodes.keys().filter(|node| self.rules.is_suspended(**node));
        let expected: Vec<_> = ids.map(|node| i32::from(node.number())).collect();
        assert_eq!(found, expected, "nodes in suspense after: {after}");
    }
}
