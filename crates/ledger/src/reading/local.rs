//! Figures of a ledger that has all of its accounts' money: from its shards, its own sled and, for old
//! lines, its journal.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::HashMap;
use std::ops::Range;

use async_trait::async_trait;

use crate::memory::Ledger;
use crate::memory::books::{Books, StatementLines};
use crate::ports::funds::UsageOfModel;
use crate::projection::grain::Grain;
use crate::projection::store::{CallName, Store};
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

/// The figures of a ledger that it adds up itself.
pub(crate) struct LocalBooks;

#[async_trait]
impl Books for LocalBooks {
    async fn figures(&self, accounts: Vec<Account>) -> Result<Vec<Account>, LedgerError> {
        Ok(accounts)
    }

    async fn totals(&self, ledger: &Ledger) -> Result<Totals, LedgerError> {
        Ok(ledger.own_totals())
    }

    fn debt(&self, ledger: &Ledger) -> Nanousd {
        ledger.own_totals().balance.debt
    }

    fn credit(&self, ledger: &Ledger) -> CreditSums {
        let totals = ledger.own_totals();
        CreditSums { lines: totals.balance.credit, used: totals.credit_used }
    }

    async fn lines(
        &self,
        ledger: &Ledger,
        account: AccountId,
        before: Seq,
        limit: usize,
    ) -> Result<StatementLines, LedgerError> {
        // In this order no hold is missed that ends meanwhile.
        let open = ledger.open_holds_of(account, before);
        let ended = ledger.lines(account, before, limit).await?;
        Ok(StatementLines { open, ended })
    }

    async fn in_doubt(&self, ledger: &Ledger) -> Result<Vec<JournaledRecord>, LedgerError> {
        ledger.query(Store::in_doubt).await
    }

    async fn usage(
        &self,
        ledger: &Ledger,
        account: AccountId,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<(UsageCell, UsageTotal)>, LedgerError> {
        ledger.query(move |store| store.usage(account, grain, times)).await
    }

    async fn usage_lately(
        &self,
        ledger: &Ledger,
        account: AccountId,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<(UsageCell, UsageTotal)>, LedgerError> {
        ledger.ask(move |store| store.usage(account, grain, times)).await
    }

    async fn usage_of_all(
        &self,
        ledger: &Ledger,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<UsageOfModel>, LedgerError> {
        ledger.ask(move |store| store.usage_of_all(grain, times)).await
    }

    async fn keys_last_used(
        &self,
        ledger: &Ledger,
        account: AccountId,
    ) -> Result<HashMap<KeyId, UnixMs>, LedgerError> {
        ledger.ask(move |store| store.keys_last_used(account)).await
    }

    async fn losses(&self, ledger: &Ledger, limit: usize) -> Result<LossReport, LedgerError> {
        let sums = ledger.loss_sums();
        let last = ledger.query(move |store| store.losses(limit)).await?;
        Ok(LossReport { sums, last })
    }

    async fn open_hold_of(
        &self,
        ledger: &Ledger,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<(HoldId, OpenHold)>, LedgerError> {
        Ok(ledger.open_call(account, name))
    }

    async fn end_of_call(
        &self,
        ledger: &Ledger,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<JournaledRecord>, LedgerError> {
        ledger.end_of_call(account, name).await
    }

    async fn refunds_of(
        &self,
        ledger: &Ledger,
        account: AccountId,
        hold: HoldId,
        limit: usize,
    ) -> Result<Vec<JournaledRecord>, LedgerError> {
        let mut places = ledger.shard(account).lock().refunds_of(account, hold);
        places.sort_unstable();
        places.truncate(limit);
        ledger.lines_at(account, places).await
    }

    async fn charged(
        &self,
        ledger: &Ledger,
        account: AccountId,
        hold: HoldId,
    ) -> Result<Option<Nanousd>, LedgerError> {
        ledger.charged_here(account, hold).await
    }

    async fn in_suspense(
        &self,
        _node: NodeId,
        _account: AccountId,
    ) -> Result<Option<Nanousd>, LedgerError> {
        Err(LedgerError::NoFleet)
    }
}
