//! Balances for display. In a fleet only the treasury knows them: the figures of
//! [`Ledger::account`] are the money that this node has to spend.

use crate::memory::Ledger;
use crate::records::error::LedgerError;
use crate::rules::account::{Account, Totals};
use crate::rules::credit::CreditSums;
use tollgate_money::money::Nanousd;
use tollgate_types::ids::{AccountId, HoldId};

impl Ledger {
    /// The account with this id, after everything it shows is on disk, so that a crash cannot take back what
    /// was reported. In a fleet it contains the reports of all nodes, and leased money counts as available.
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

    /// These accounts with their reported figures, queried together.
    ///
    /// # Errors
    /// In a fleet [`LedgerError::Unavailable`].
    pub async fn with_figures(&self, accounts: Vec<Account>) -> Result<Vec<Account>, LedgerError> {
        self.books.figures(accounts).await
    }

    /// Sums over all accounts.
    ///
    /// # Errors
    /// In a fleet [`LedgerError::Unavailable`].
    pub async fn totals(&self) -> Result<Totals, LedgerError> {
        self.books.totals(self).await
    }

    /// Debt of all accounts in this process's books: zero in a fleet, whose treasury has them.
    #[must_use]
    pub fn debt(&self) -> Nanousd {
        self.books.debt(self)
    }

    /// The credit lines of all accounts. A node of a fleet knows of none: [`Ledger::totals`] has them.
    #[must_use]
    pub fn credit(&self) -> CreditSums {
        self.books.credit(self)
    }

    /// Charge of a settled hold; `None` if the account has no such hold.
    pub(crate) async fn charged(
        &self,
        account: AccountId,
        hold: HoldId,
    ) -> Result<Option<Nanousd>, LedgerError> {
        self.books.charged(self, account, hold).await
    }
}
