//! A node's ledger: the real core, and a journal in memory of which some is on disk.

use std::collections::BTreeMap;

use tollgate::clock::UnixMs;
use tollgate::fleet::borrower::{LocalFunds, Unreadable};
use tollgate::ledger::LeaseReport;
use tollgate::ledger::audit::state_hash;
use tollgate::ledger::core::Core;
use tollgate::ledger::{
    AccountId, Balance, FleetHistory, HoldId, NodeId, Record, RecoveryPolicy, Seq, settled,
};
use tollgate::money::Nanousd;

/// Amounts that a stretch of the journal took from leases, counted without the code under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) charged: i64,
    pub(crate) owed: i64,
    pub(crate) written_off: i64,
    pub(crate) returned: i64,
}

impl Used {
    fn add(&mut self, record: &Record) {
        match record {
            Record::Posted { charged, written_off, .. } => {
                self.charged += charged.get();
                self.written_off += written_off.get();
            }
            Record::PostedOwing { charged, owed, written_off, .. } => {
                self.charged += charged.get();
                self.owed += owed.get();
                self.written_off += written_off.get();
            }
            Record::Recovered { charged, .. } => self.charged += charged.get(),
            Record::Returned { amount, .. } => self.returned += amount.get(),
            _ => {}
        }
    }
}

pub(crate) struct Books {
    node: NodeId,
    pub(crate) core: Core,
    journal: Vec<Record>,
    durable: usize,
    /// Amounts that the whole journal took from leases, and the reported part.
    used: BTreeMap<AccountId, Used>,
    reported: BTreeMap<AccountId, Used>,
    reported_to: usize,
    reserved: BTreeMap<AccountId, Nanousd>,
    watched: BTreeMap<AccountId, Nanousd>,
    /// Accounts that have fallen below what is watched.
    pub(crate) low: Vec<AccountId>,
    /// A report waits until everything is on disk, as the real one does.
    pub(crate) report_waits: bool,
    /// It takes no more records than this.
    pub(crate) report_max: usize,
    /// The wall clock, which no rule depends on.
    pub(crate) at: UnixMs,
}

impl Books {
    pub(crate) fn new(node: NodeId, accounts: &[AccountId]) -> Self {
        let mut books = Self {
            node,
            core: Core::of_node(),
            journal: Vec::new(),
            durable: 0,
            used: BTreeMap::new(),
            reported: BTreeMap::new(),
            reported_to: 0,
            reserved: BTreeMap::new(),
            watched: BTreeMap::new(),
            low: Vec::new(),
            report_waits: true,
            report_max: usize::MAX,
            at: UnixMs(1_000_000),
        };
        for account in accounts.iter().copied() {
            let name = account.to_string();
            books.append(Record::AccountCreated { account, name, at: books.at });
        }
        books.flush();
        books
    }

    pub(crate) fn append(&mut self, record: Record) -> Seq {
        let seq = self.node.begin() + self.journal.len() as u64 + 1;
        self.core.apply(seq, &record).expect("what was decided is allowed");
        let account = record.account();
        let balance = self.balance(account);
        assert!(balance.is_sound(), "{balance:?}");
        self.used.entry(account).or_default().add(&record);
        if let Record::Reserved(reservation) = &record {
            let sum = self.reserved.entry(account).or_default();
            *sum = sum.checked_add(reservation.amount).expect("a sum that fits");
            if self.watched.get(&account).is_some_and(|below| balance.available < *below) {
                self.watched.remove(&account);
                self.low.push(account);
            }
        }
        self.journal.push(record);
        seq
    }

    pub(crate) fn balance(&self, account: AccountId) -> Balance {
        self.core.account(account).expect("the account").balance
    }

    pub(crate) fn flush(&mut self) {
        self.durable = self.journal.len();
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.durable == self.journal.len()
    }

    /// The process dies: what was on its way to the disk may be there or not. What stands in the
    /// journal gives the same state again (I7).
    pub(crate) fn crash(&mut self, kept_of_tail: f64) {
        let hash = state_hash([&self.core].into_iter());
        let replayed = self.replay(self.journal.len());
        assert_eq!(hash, state_hash([&replayed].into_iter()), "a replay gives another state");
        let tail = self.journal.len() - self.durable;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small count"
        )]
        let kept = (tail as f64 * kept_of_tail) as usize;
        self.journal.truncate(self.durable + kept);
        self.core = self.replay(self.journal.len());
        self.flush();
        self.used.clear();
        for record in &self.journal {
            self.used.entry(record.account()).or_default().add(record);
        }
        self.reserved.clear();
        self.watched.clear();
        self.low.clear();
    }

    fn replay(&self, count: usize) -> Core {
        let mut core = Core::of_node();
        for (record, seq) in self.journal[..count].iter().zip(self.node.begin() + 1..) {
            core.apply(seq, record).expect("what was recorded is allowed");
        }
        core
    }

    /// Ends the holds of the previous process and returns its leases, as a start does.
    pub(crate) fn recover(&mut self, policy: RecoveryPolicy) {
        let mut open: Vec<HoldId> = self.core.holds().map(|(id, _)| id).collect();
        open.sort();
        for hold in open {
            let record = self.core.decide_recovery(hold, policy, self.at).expect("an open hold");
            self.append(record);
        }
        let accounts: Vec<_> = self.used.keys().copied().collect();
        for account in accounts {
            self.give_back(account, self.balance(account).available);
        }
        self.flush();
    }

    /// The treasury has the journal up to here.
    pub(crate) fn was_reported(&mut self, to: Seq) {
        let to = usize::try_from(NodeId::count(to)).expect("a place");
        assert!(to <= self.durable, "what was not on disk was reported");
        for record in &self.journal[self.reported_to..to] {
            self.reported.entry(record.account()).or_default().add(record);
        }
        self.reported_to = to;
    }

    /// Everything that the journal says of an account's leases.
    pub(crate) fn used(&self, account: AccountId) -> Used {
        self.used.get(&account).copied().unwrap_or_default()
    }

    /// As much of it as the treasury has.
    pub(crate) fn reported(&self, account: AccountId) -> Used {
        self.reported.get(&account).copied().unwrap_or_default()
    }

    /// Changes with everything that happens here.
    pub(crate) fn version(&self) -> usize {
        self.journal.len() + self.durable + self.reported_to
    }

    /// Money that cannot be returned: held, or spent and not reported.
    pub(crate) fn held_or_charged(&self, account: AccountId) -> i64 {
        let unreported = self.used(account).charged - self.reported(account).charged;
        self.balance(account).held.get() + unreported
    }

    /// Money that the node counts as its own, or has spent or returned without the treasury's knowledge.
    pub(crate) fn outstanding(&self, account: AccountId) -> i64 {
        let (balance, used, reported) =
            (self.balance(account), self.used(account), self.reported(account));
        balance.available.get() + balance.held.get() + used.charged - reported.charged
            + used.returned
            - reported.returned
    }
}

impl LocalFunds for Books {
    fn available(&self, account: AccountId) -> Nanousd {
        self.balance(account).available
    }

    fn held(&self, account: AccountId) -> Nanousd {
        self.balance(account).held
    }

    fn reserved(&self, account: AccountId) -> Nanousd {
        self.reserved.get(&account).copied().unwrap_or_default()
    }

    fn give_back(&mut self, account: AccountId, amount: Nanousd) -> bool {
        if amount <= Nanousd::ZERO || amount > self.available(account) {
            return false;
        }
        self.append(Record::Returned { account, amount, at: self.at });
        true
    }

    fn take_in(&mut self, account: AccountId, amount: Nanousd) {
        self.append(Record::Leased { account, amount, at: self.at });
    }

    fn watch(&mut self, account: AccountId, below: Nanousd) {
        self.watched.insert(account, below);
    }

    fn report(&mut self, from: Seq) -> Result<Option<LeaseReport>, Unreadable> {
        if self.report_waits {
            self.flush();
        }
        let begin = usize::try_from(NodeId::count(from)).expect("a place");
        let end = self.durable.min(begin.saturating_add(self.report_max));
        let report = (end > begin).then(|| LeaseReport {
            from,
            to: self.node.begin() + end as u64,
            settled: settled(&self.journal[begin..end]),
            history: FleetHistory::default(),
        });
        Ok(report)
    }
}
