//! Figures of a ledger that shares its accounts' money with others: as the place has them where all
//! report what they spend.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use crate::memory::Ledger;
use crate::memory::books::{Books, StatementLines};
use crate::ports::funds::{SharedFunds, UsageOfModel};
use crate::projection::grain::Grain;
use crate::projection::store::CallName;
use crate::projection::window::{UsageCell, UsageTotal};
use crate::records::error::LedgerError;
use crate::records::loss::LossReport;
use crate::records::record::JournaledRecord;
use crate::records::reservation::OpenHold;
use crate::rules::account::{Account, Totals};
use crate::rules::credit::CreditSums;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, KeyId, NodeId, Seq};

/// The figures of a ledger that are added up with those of others.
pub(crate) struct SharedBooks(pub(crate) Arc<dyn SharedFunds>);

#[async_trait]
impl Books for SharedBooks {
    async fn figures(&self, mut accounts: Vec<Account>) -> Result<Vec<Account>, LedgerError> {
        if accounts.is_empty() {
            return Ok(accounts);
        }
        let ids: Vec<AccountId> = accounts.iter().map(|account| account.id).collect();
        let found = self.0.balances(&ids).await?;
        for account in &mut accounts {
            let figures = found.get(&account.id).copied().unwrap_or_default();
            (account.balance, account.written_off) = figures;
        }
        Ok(accounts)
    }

    async fn totals(&self, _ledger: &Ledger) -> Result<Totals, LedgerError> {
        self.0.totals().await
    }

    fn debt(&self, _ledger: &Ledger) -> Nanousd {
        Nanousd::ZERO
    }

    fn credit(&self, _ledger: &Ledger) -> CreditSums {
        CreditSums::default()
    }

    async fn lines(
        &self,
        _ledger: &Ledger,
        account: AccountId,
        before: Seq,
        limit: usize,
    ) -> Result<StatementLines, LedgerError> {
        // Of holds that are open only their own nodes know.
        let ended = self.0.entries(account, before, limit).await?;
        Ok(StatementLines { open: Vec::new(), ended })
    }

    async fn in_doubt(&self, _ledger: &Ledger) -> Result<Vec<JournaledRecord>, LedgerError> {
        self.0.in_doubt().await
    }

    async fn usage(
        &self,
        _ledger: &Ledger,
        account: AccountId,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<(UsageCell, UsageTotal)>, LedgerError> {
        self.0.usage(account, grain, times).await
    }

    async fn usage_lately(
        &self,
        _ledger: &Ledger,
        account: AccountId,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<(UsageCell, UsageTotal)>, LedgerError> {
        self.0.usage(account, grain, times).await
    }

    async fn usage_of_all(
        &self,
        _ledger: &Ledger,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<UsageOfModel>, LedgerError> {
        self.0.usage_of_all(grain, times).await
    }

    async fn keys_last_used(
        &self,
        _ledger: &Ledger,
        account: AccountId,
    ) -> Result<HashMap<KeyId, UnixMs>, LedgerError> {
        self.0.keys_last_used(account).await
    }

    async fn losses(&self, _ledger: &Ledger, limit: usize) -> Result<LossReport, LedgerError> {
        self.0.losses(limit).await
    }

    /// A call of this ledger that is open, or a task's, which any of them opened.
    async fn open_hold_of(
        &self,
        ledger: &Ledger,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<(HoldId, OpenHold)>, LedgerError> {
        match ledger.open_call(account, name) {
            Some(found) => Ok(Some(found)),
            None => self.0.open_hold_of(account, name).await,
        }
    }

    async fn end_of_call(
        &self,
        ledger: &Ledger,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<JournaledRecord>, LedgerError> {
        match self.0.end_of_call(account, name).await? {
            Some(end) => Ok(Some(end)),
            // This node's own, which it has yet to report.
            None => ledger.query(move |store| store.end_of_call(account, name)).await,
        }
    }

    async fn refunds_of(
        &self,
        _ledger: &Ledger,
        account: AccountId,
        hold: HoldId,
        limit: usize,
    ) -> Result<Vec<JournaledRecord>, LedgerError> {
        self.0.refunds_of(account, hold, limit).await
    }

    async fn charged(
        &self,
        _ledger: &Ledger,
        account: AccountId,
        hold: HoldId,
    ) -> Result<Option<Nanousd>, LedgerError> {
        self.0.charged(account, hold).await
    }

    async fn in_suspense(
        &self,
        node: NodeId,
        account: AccountId,
    ) -> Result<Option<Nanousd>, LedgerError> {
        self.0.in_suspense(node, account).await
    }
}
