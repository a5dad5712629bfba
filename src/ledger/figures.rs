//! What accounts have, as it is shown. In a fleet the treasury knows, and no node alone: there the
//! figures of [`Ledger::account`] are what one node has to spend.

use crate::ledger::error::LedgerError;
use crate::ledger::{Account, AccountId, Balance, Ledger};
use crate::money::Nanousd;

/// What all accounts have together. Figures past the range stay at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many there are.
    pub accounts: usize,
    /// Their money.
    pub balance: Balance,
    /// What their calls cost beyond it, borne by the operator.
    pub written_off: Nanousd,
}

impl Totals {
    fn add(&mut self, account: &Account) {
        let Balance { granted, available, held, spent } = account.balance;
        for (sum, more) in [
            (&mut self.balance.granted, granted),
            (&mut self.balance.available, available),
            (&mut self.balance.held, held),
            (&mut self.balance.spent, spent),
            (&mut self.written_off, account.written_off),
        ] {
            *sum = sum.checked_add(more).unwrap_or(Nanousd::MAX);
        }
        self.accounts = self.accounts.saturating_add(1);
    }
}

impl Ledger {
    /// The account of this id, once all that it shows is on disk: what a crash could still take back
    /// is told to nobody. In a fleet it shows what all nodes have reported, and what nodes have out
    /// counts as available.
    ///
    /// # Errors
    /// [`LedgerError::Stopped`] when the ledger closed before that; in a fleet
    /// [`LedgerError::Unavailable`].
    pub async fn durable_account(&self, id: AccountId) -> Result<Option<Account>, LedgerError> {
        let account = self.account(id);
        self.journal.durable(self.journal.last_seq()).await?;
        let shown = self.with_figures(account.into_iter().collect()).await?;
        Ok(shown.into_iter().next())
    }

    /// These accounts with the figures that are shown of them, all asked for at once.
    ///
    /// # Errors
    /// In a fleet [`LedgerError::Unavailable`].
    pub async fn with_figures(
        &self,
        mut accounts: Vec<Account>,
    ) -> Result<Vec<Account>, LedgerError> {
        let Some(fleet) = self.fleet().filter(|_| !accounts.is_empty()) else {
            return Ok(accounts);
        };
        let ids: Vec<AccountId> = accounts.iter().map(|account| account.id).collect();
        let found = fleet.db().balances(&ids).await?;
        for account in &mut accounts {
            let figures = found.get(&account.id).copied().unwrap_or_default();
            (account.balance, account.written_off) = figures;
        }
        Ok(accounts)
    }

    /// What all accounts have together.
    ///
    /// # Errors
    /// In a fleet [`LedgerError::Unavailable`].
    pub async fn totals(&self) -> Result<Totals, LedgerError> {
        if let Some(fleet) = self.fleet() {
            return Ok(fleet.db().totals().await?);
        }
        let mut totals = Totals::default();
        self.accounts().iter().for_each(|account| totals.add(account));
        Ok(totals)
    }
}
