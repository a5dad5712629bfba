//! Loans, credit lines and forgotten loans of a treasury in memory.

use super::*;
use tollgate_ledger::FleetHistory;

/// A loan is forgotten after a failover to a standby that had not heard of the last syncs.
#[test]
fn what_was_spent_of_a_forgotten_loan_is_paid_with_what_is_there() {
    let (account, usd) = (AccountId::from_number(1), Nanousd::new);
    let node = NodeId::from_number(1).expect("a node");
    for (granted, paid, written_off) in [(1000, 300, 0), (200, 200, 100)] {
        let mut treasury = Treasury::default();
        treasury.grant(account, usd(granted));
        let epoch = treasury.join(node).epoch;
        let settled = LeaseSettlement {
            account,
            charged: usd(300),
            owed: Nanousd::ZERO,
            written_off: Nanousd::ZERO,
            returned: Nanousd::ZERO,
        };
        let (from, to, history) = (node.begin(), node.begin() + 7, FleetHistory::default());
        let report = Some(LeaseReport { from, to, settled: vec![settled], history });
        let sync = SyncRequest { node, epoch, turn: 1, report, ..SyncRequest::default() };
        let now = Duration::from_secs(1);
        treasury.sync(&sync, now, Duration::from_secs(10)).expect("taken");
        let funds = treasury.funds(account).copied().expect("a purse");
        assert_eq!((funds.spent, funds.written_off), (usd(paid), usd(written_off)));
        assert_eq!(funds.available, usd(granted - paid));
        assert!(funds.is_sound(), "{funds:?}");
    }
}

#[test]
fn a_line_is_lent_to_nodes_like_any_other_money() {
    let (account, usd) = (AccountId::from_number(1), Nanousd::new);
    let mut treasury = Treasury::default();
    treasury.grant(account, usd(10));
    let lent = CreditChange { limit: usd(90), lent: usd(90), ..CreditChange::default() };
    assert_eq!(treasury.set_credit(account, usd(90)), Ok(lent));
    let node = NodeId::from_number(1).expect("a node");
    let epoch = treasury.join(node).epoch;
    let (now, term) = (Duration::from_secs(1), Duration::from_secs(10));
    let request = LoanRequest { account, least: usd(60), most: usd(60) };
    let asking =
        SyncRequest { node, epoch, turn: 1, requests: vec![request], ..SyncRequest::default() };
    let answer = treasury.sync(&asking, now, term).expect("taken");
    assert_eq!(answer.loans, [(account, Loan::Lent(usd(60)))]);
    assert_eq!(treasury.set_credit(account, usd(49)), Err(CreditFault::InFlight(usd(50))));
    treasury.set_credit(account, usd(50)).expect("what no node has out");
    let settled = LeaseSettlement {
        account,
        charged: usd(60),
        owed: usd(5),
        written_off: usd(0),
        returned: usd(0),
    };
    let (from, to, history) = (node.begin(), node.begin() + 1, FleetHistory::default());
    let report = Some(LeaseReport { from, to, settled: vec![settled], history });
    let reporting = SyncRequest { node, epoch, turn: 2, report, ..SyncRequest::default() };
    treasury.sync(&reporting, now, term).expect("taken");
    let owing = CreditChange { owed: usd(50), ..CreditChange::default() };
    assert_eq!(treasury.set_credit(account, usd(0)), Ok(owing), "all of it was spent");
    let funds = treasury.funds(account).copied().expect("a purse");
    assert_eq!((funds.granted, funds.spent, funds.debt), (usd(10), usd(10), usd(55)));
    treasury.set_credit(account, usd(70)).expect("lent anew");
    let funds = treasury.funds(account).copied().expect("a purse");
    assert_eq!((funds.available, funds.spent, funds.debt), (usd(15), usd(65), usd(0)));
    assert!(funds.is_sound(), "{funds:?}");
}

/// One account, two nodes, and what must bound it.
struct LentFleet {
    treasury: Treasury,
    nodes: [NodeId; 2],
    epochs: [Epoch; 2],
    turns: [Turn; 2],
    seqs: [Seq; 2],
    paid_in: i64,
    line_max: i64,
    beyond: i64,
}

const ACCOUNT: AccountId = AccountId::from_number(1);

impl LentFleet {
    fn new() -> Self {
        let mut treasury = Treasury::default();
        treasury.grant(ACCOUNT, Nanousd::new(1));
        let nodes = [1, 2].map(|number| NodeId::from_number(number).expect("a node"));
        let epochs = nodes.map(|node| treasury.join(node).epoch);
        let (turns, seqs) = ([0, 0], nodes.map(NodeId::begin));
        Self { treasury, nodes, epochs, turns, seqs, paid_in: 1, line_max: 0, beyond: 0 }
    }

    fn funds(&self) -> AccountFunds {
        *self.treasury.funds(ACCOUNT).expect("a purse")
    }

    fn set_line(&mut self, limit: i64) {
        let before = self.funds();
        let set = self.treasury.set_credit(ACCOUNT, Nanousd::new(limit));
        let after = self.funds();
        match set {
            Ok(_) => {
                self.line_max = self.line_max.max(limit);
                let cost = |funds: AccountFunds| funds.spent.checked_add(funds.debt);
                assert_eq!((after.credit.get(), cost(after)), (limit, cost(before)));
            }
            Err(_) => assert_eq!(before, after),
        }
    }

    /// A node reports calls and what it gives back, and asks for more.
    fn sync(&mut self, at: usize, random: &mut fastrand::Rng) {
        let usd = Nanousd::new;
        let has = self.treasury.leased(self.nodes[at], ACCOUNT).get();
        let charged = random.i64(0..=has);
        let returned = random.i64(0..=has - charged);
        let owed = if random.u8(..5) == 0 { random.i64(0..20) } else { 0 };
        self.beyond += owed;
        self.turns[at] += 1;
        let settled = LeaseSettlement {
            account: ACCOUNT,
            charged: usd(charged),
            owed: usd(owed),
            written_off: usd(0),
            returned: usd(returned),
        };
        let (from, to, history) = (self.seqs[at], self.seqs[at] + 1, FleetHistory::default());
        self.seqs[at] = to;
        let amount = usd(random.i64(0..40));
        let sync = SyncRequest {
            node: self.nodes[at],
            epoch: self.epochs[at],
            turn: self.turns[at],
            report: Some(LeaseReport { from, to, settled: vec![settled], history }),
            requests: vec![LoanRequest { account: ACCOUNT, least: amount, most: amount }],
            ..SyncRequest::default()
        };
        let (now, term) = (Duration::from_secs(1), Duration::from_secs(10));
        self.treasury.sync(&sync, now, term).expect("taken");
    }

    fn check(&self) {
        let funds = self.funds();
        assert!(funds.is_sound(), "{funds:?}");
        assert_eq!(funds.granted.get() - funds.credit.get(), self.paid_in);
        let used = funds.spent.get() + funds.debt.get() + funds.leased.get();
        assert!(used <= self.paid_in + self.line_max + self.beyond, "{funds:?}");
    }
}

/// Lines go up and down while nodes borrow, spend more than they have and give back.
#[test]
fn lines_of_a_fleet_keep_every_purse_sound() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..500 {
        let mut fleet = LentFleet::new();
        for _ in 0..40 {
            match random.u8(..4) {
                0 => {
                    let amount = random.i64(1..50);
                    fleet.treasury.grant(ACCOUNT, Nanousd::new(amount));
                    fleet.paid_in += amount;
                }
                1 => fleet.set_line(random.i64(0..100)),
                _ => fleet.sync(random.usize(..2), &mut random),
            }
            fleet.check();
        }
    }
}

#[test]
fn nobody_borrows_ahead_of_what_another_node_waits_for() {
    let (account, usd) = (AccountId::from_number(1), Nanousd::new);
    let mut treasury = Treasury::default();
    treasury.grant(account, usd(100));
    let nodes = [1, 2, 3].map(|number| NodeId::from_number(number).expect("a node"));
    for node in nodes {
        treasury.join(node);
    }
    let mut turns = [0; 3];
    let mut request = |number: usize, least, most| {
        turns[number] += 1;
        let requests = vec![LoanRequest { account, least: usd(least), most: usd(most) }];
        let (node, turn) = (nodes[number], turns[number]);
        let sync = SyncRequest { node, epoch: 1, turn, requests, ..SyncRequest::default() };
        let now = Duration::from_secs(1);
        let answer = treasury.sync(&sync, now, Duration::from_secs(10));
        answer.map(|answer| answer.loans[0].1).expect("taken")
    };
    assert_eq!(request(0, 50, 50), Loan::Lent(usd(50)), "one node has half of it");
    assert!(matches!(request(1, 80, 80), Loan::Shortage(_)), "another waits for more than is left");
    assert!(matches!(request(2, 0, 40), Loan::Shortage(_)), "nobody waits at the third");
    assert_eq!(request(2, 5, 40), Loan::Lent(usd(5)), "one of its calls waits for so much");
}
