//! Invariants of the money after every fault.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate::money::Nanousd;

use super::place::{PRICE, Tally};
use crate::harness::load::Call;
use crate::harness::nodes::{Node, Nodes};
use crate::harness::postgres::Postgres;

/// How long the last reports may take, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The treasury's side of a fleet.
pub(crate) struct Books<'a> {
    pub(crate) server: &'a Postgres,
    pub(crate) database: &'a str,
}

/// An account's row, in nano-dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Purse {
    pub(crate) granted: i64,
    pub(crate) available: i64,
    pub(crate) leased: i64,
    pub(crate) held: i64,
    pub(crate) spent: i64,
    pub(crate) suspense: i64,
    pub(crate) written_off: i64,
}

impl Books<'_> {
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.server.sql(self.database, sql)
    }

    /// An account's balances, which must add up.
    pub(crate) fn purse(&self, account: &str) -> Purse {
        let row = self.sql(&format!(
            "SELECT granted, available, leased, held, spent, suspense, written_off
             FROM tollgate.accounts WHERE id = '{account}'"
        ));
        let sums: Vec<i64> = row.split('|').map(|sum| sum.parse().expect("a sum")).collect();
        let [granted, available, leased, held, spent, suspense, written_off] = sums[..] else {
            panic!("{account} has the row {row:?}")
        };
        assert!(sums.iter().all(|sum| *sum >= 0), "{row}");
        assert_eq!(granted, available + leased + held + spent + suspense, "{row}");
        Purse { granted, available, leased, held, spent, suspense, written_off }
    }

    /// Waits until nothing is in suspense and all that was answered is reported; then the account paid
    /// for each answer once and for nothing else. Gives the row.
    pub(crate) fn balanced(&self, nodes: &Nodes, account: &str, calls: &[Call]) -> Purse {
        let (purse, in_doubt) = self.balanced_but_for_doubts(nodes, account, calls);
        assert_eq!(in_doubt, 0, "nobody died");
        purse
    }

    /// The same where nodes were killed: calls that were under way are in doubt, and cost nothing. How
    /// many they are is given, too.
    pub(crate) fn balanced_but_for_doubts(
        &self,
        nodes: &Nodes,
        account: &str,
        calls: &[Call],
    ) -> (Purse, usize) {
        let deadline = Instant::now() + TIMEOUT;
        let answered = calls.iter().filter(|call| call.status == 200);
        let answered: Vec<&str> = answered.filter_map(|call| call.request.as_deref()).collect();
        loop {
            let (purse, settled) = (self.purse(account), settlements(nodes, account));
            let in_doubt = doubts(nodes, account);
            let missing = answered.iter().filter(|id| {
                !settled.contains_key(**id) && !in_doubt.iter().any(|doubt| doubt == *id)
            });
            let missing = missing.count();
            let charged: i64 = settled.values().sum();
            if missing == 0 && purse.suspense == 0 && purse.spent == charged {
                self.check(account, calls, &settled);
                return (purse, in_doubt.len());
            }
            assert!(
                Instant::now() < deadline,
                "{missing} answers are not on the statement, which says {charged}: {purse:?}\n{}\n{}",
                Tally(calls),
                nodes.nodes.iter().map(Node::warnings).collect::<Vec<_>>().join("\n---\n")
            );
            std::thread::sleep(Duration::from_millis(100));
        }
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
        assert_eq!(self.purse(account).written_off, 0, "nothing cost more than was held");
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
