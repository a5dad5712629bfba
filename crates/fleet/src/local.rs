//! A node's own money, as its borrower sees it.

use std::sync::Arc;

use super::borrower::{LocalFunds, Unreadable};
use tollgate_ledger::{AccountId, LeaseReport, Ledger, Reporter, Seq};
use tollgate_money::money::Nanousd;

/// The money that is in a node's ledger, and the reports of its journal.
pub(crate) struct LocalMoney {
    ledger: Arc<Ledger>,
    reporter: Reporter,
}

impl LocalMoney {
    /// The money of this ledger.
    pub(crate) fn new(ledger: &Arc<Ledger>) -> Self {
        Self { ledger: Arc::clone(ledger), reporter: Reporter::new(ledger.dir()) }
    }
}

impl LocalFunds for LocalMoney {
    fn available(&self, account: AccountId) -> Nanousd {
        self.ledger.available_and_held(account).0
    }

    fn held(&self, account: AccountId) -> Nanousd {
        self.ledger.available_and_held(account).1
    }

    fn reserved(&self, account: AccountId) -> Nanousd {
        self.ledger.reserved(account)
    }

    fn give_back(&mut self, account: AccountId, amount: Nanousd) -> bool {
        self.ledger.give_back(account, amount)
    }

    fn take_in(&mut self, account: AccountId, amount: Nanousd) {
        self.ledger.take_in(account, amount);
    }

    fn watch(&mut self, account: AccountId, below: Nanousd) {
        self.ledger.watch(account, below);
    }

    fn report(&mut self, from: Seq) -> Result<Option<LeaseReport>, Unreadable> {
        let runtime = tokio::runtime::Handle::current();
        // Nothing is reported that a crash of this machine could take back: the treasury would count it for
        // ever.
        let to = runtime.block_on(self.ledger.on_disk()).ok_or(Unreadable)?;
        self.reporter.read(from, to).map_err(|error| {
            log::error!("the journal cannot be reported: {error}");
            Unreadable
        })
    }
}
