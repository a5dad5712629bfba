//! Invariants of the money after every fault.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tollgate::money::Nanousd;

use super::place::{PRICE, Tally};
use crate::harness::fleet::AccountRow;
use crate::harness::load::Call;
use crate::harness::nodes::{Node, Nodes};
use crate::harness::postgres::Postgres;
use crate::harness::within;

/// How long the last reports may take, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The treasury's side of a fleet.
pub(crate) struct Books<'a> {
    pub(crate) server: &'a Postgres,
    pub(crate) database: &'a str,
}

impl Books<'_> {
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.server.sql(self.database, sql)
    }

    /// The treasury's row of an account, of which no part is below zero.
    pub(crate) fn account(&self, account: &str) -> AccountRow {
        let row = AccountRow::of(self.server, self.database, account);
        let parts = [row.available, row.leased, row.held, row.spent, row.suspense, row.written_off];
        assert!(parts.iter().all(|part| *part >= 0), "{row:?}");
        row
    }

    /// Waits until nothing is in suspense and all that was answered is reported; then the account paid
    /// for each answer once and for nothing else. Gives the row.
    pub(crate) fn balanced(&self, nodes: &Nodes, account: &str, calls: &[Call]) -> AccountRow {
        let (row, in_doubt) = self.balanced_but_for_doubts(nodes, account, calls);
        assert_eq!(in_doubt, 0, "nobody died");
        row
    }

    /// The same where nodes were killed: calls that were under way are in doubt, and cost nothing. How
    /// many they are is given, too.
    pub(crate) fn balanced_but_for_doubts(
        &self,
        nodes: &Nodes,
        account: &str,
        calls: &[Call],
    ) -> (AccountRow, usize) {
        let mut balanced = None;
        within(
            TIMEOUT,
            || {
                let (row, settled, in_doubt, missing) = self.found(nodes, account, calls);
                let charged: i64 = settled.values().sum();
                if missing == 0 && row.suspense == 0 && row.spent == charged {
                    self.check(account, calls, &settled);
                    balanced = Some((row, in_doubt));
                }
                balanced.is_some()
            },
            || {
                let (row, settled, in_doubt, missing) = self.found(nodes, account, calls);
                let charged: i64 = settled.values().sum();
                let warnings: Vec<_> = nodes.nodes.iter().map(Node::warnings).collect();
                format!(
                    "{missing} answers are missing, {charged} was charged, {in_doubt} are in doubt: \
                     {row:?}\n{}\n{}",
                    Tally(calls),
                    warnings.join("\n---\n")
                )
            },
        );
        balanced.expect("a row")
    }

    /// The row, the settled calls, the number of calls in doubt, and that of answers without either.
    fn found(
        &self,
        nodes: &Nodes,
        account: &str,
        calls: &[Call],
    ) -> (AccountRow, BTreeMap<String, i64>, usize, usize) {
        let (row, settled) = (self.account(account), settlements(nodes, account));
        let in_doubt = doubts(nodes, account);
        let answered = calls.iter().filter(|call| call.status == 200);
        let missing = answered
            .filter_map(|call| call.request.as_ref())
            .filter(|id| !settled.contains_key(*id) && !in_doubt.iter().any(|doubt| doubt == *id));
        let missing = missing.count();
        (row, settled, in_doubt.len(), missing)
    }

    fn check(&self, account: &str, calls: &[Call], settled: &BTreeMap<String, i64>) {
        for (request, charged) in settled {
            assert_eq!(*charged, PRICE, "{request} was charged");
        }
        let refused = calls.iter().filter(|call| call.status != 200 && call.status != 0);
        for call in refused {
            let id = call.request.as_deref().unwrap_or_default();
            assert!(!settled.contains_key(id), "{call:?} was charged");
        }
        let count = |status: u16| calls.iter().filter(|call| call.status == status).count();
        let message = calls.iter().filter(|call| call.status == 200);
        let message = message.filter_map(|call| call.request.as_ref());
        let unheard = settled.len() - message.filter(|id| settled.contains_key(*id)).count();
        assert!(
            unheard <= count(0),
            "{unheard} calls were charged of {} that got no answer",
            count(0)
        );
        assert_eq!(self.account(account).written_off, 0, "nothing cost more than was held");
    }

    /// Nothing is with a node or in doubt about it any more, and all accounts together add up.
    pub(crate) fn all_is_back(&self) {
        let out = "SELECT COALESCE(SUM(leased), 0), COALESCE(SUM(suspense), 0),
                    (SELECT COALESCE(SUM(amount), 0) FROM tollgate.leases),
                    COALESCE(SUM(granted - available - held - spent), 0)
             FROM tollgate.accounts";
        assert_eq!(self.sql(out), "0|0|0|0", "leased, suspense, leases, and what is missing");
    }
}

/// Charge of each call of an account. Two charges of one call are a failure.
pub(crate) fn settlements(nodes: &Nodes, account: &str) -> BTreeMap<String, i64> {
    let mut settled = BTreeMap::new();
    for entry in nodes.entries(account) {
        if entry["kind"] == "settlement" {
            let id = entry["call"]["request_id"].as_str().expect("a request").to_owned();
            let twice = settled.insert(id, amount(&entry["charged"]));
            assert_eq!(twice, None, "charged twice: {entry}");
        } else {
            let ends = ["grant", "void", "in_doubt", "hold"];
            assert!(ends.iter().any(|kind| entry["kind"] == *kind), "{entry}");
        }
    }
    settled
}

/// The calls of an account that are in doubt. None has cost anything.
fn doubts(nodes: &Nodes, account: &str) -> Vec<String> {
    let mut entries = nodes.entries(account);
    entries.retain(|entry| entry["kind"] == "in_doubt");
    entries
        .iter()
        .map(|entry| {
            assert_eq!(amount(&entry["charged"]), 0, "by policy: {entry}");
            entry["call"]["request_id"].as_str().expect("a request").to_owned()
        })
        .collect()
}

/// An amount as the admin API writes it, in nano-dollars.
pub(crate) fn amount(value: &Value) -> i64 {
    let dollars = value.as_str().unwrap_or_else(|| panic!("no amount: {value}"));
    dollars.parse::<Nanousd>().expect("dollars").get()
}
