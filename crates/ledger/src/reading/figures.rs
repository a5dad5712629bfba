//! What accounts have, as it is shown. In a fleet the treasury knows, and no node alone: there the
//! figures of [`Ledger::account`] are what one node has to spend.

use crate::memory::ledger::Ledger;
use crate::records::error::LedgerError;
use crate::rules::account::{Account, Totals};
use tollgate_money::ids::AccountId;

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
        let Some(funds) = self.shared_funds().filter(|_| !accounts.is_empty()) else {
            return Ok(accounts);
        };
        let ids: Vec<AccountId> = accounts.iter().map(|account| account.id).collect();
        let found = funds.balances(&ids).await?;
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
        if let Some(funds) = self.shared_funds() {
            return funds.totals().await;
        }
        let mut totals = Totals::default();
        self.accounts().iter().for_each(|account| totals.add(account));
        Ok(totals)
    }
}
