//! Port for the figures of a ledger's accounts. `reading::local` and `reading::shared` implement
//! it; the ledger keeps the one that it was opened with.

use std::collections::HashMap;
use std::ops::Range;

use async_trait::async_trait;

use crate::memory::Ledger;
use crate::ports::funds::UsageOfModel;
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

/// Lines of a statement.
#[derive(Debug, Default)]
pub(crate) struct StatementLines {
    /// Open holds, in no order.
    pub(crate) open: Vec<(HoldId, OpenHold)>,
    /// Ended holds and moved amounts, newest first. A hold that ends during the read may appear
    /// here as well.
    pub(crate) ended: Vec<JournaledRecord>,
}

/// The figures of all who spend the money of a ledger's accounts, and what they are made of. The
/// ledger that asks is handed in with each call: books that kept it would keep it open. All fail with
/// [`LedgerError::Store`], [`LedgerError::Stopped`] or [`LedgerError::Unavailable`] where they cannot
/// be read.
#[async_trait]
pub(crate) trait Books: Send + Sync {
    /// These accounts, as this ledger has them, with the figures that are shown of them.
    async fn figures(&self, accounts: Vec<Account>) -> Result<Vec<Account>, LedgerError>;

    /// Sums over all accounts.
    async fn totals(&self, ledger: &Ledger) -> Result<Totals, LedgerError>;

    /// Debt of all accounts if this process has the books, else zero.
    fn debt(&self, ledger: &Ledger) -> Nanousd;

    /// The credit lines of all accounts, where this process knows them without asking; else zero.
    fn credit(&self, ledger: &Ledger) -> CreditSums;

    /// Lines of an account's statement from before `before`: at most `limit` of those that ended.
    async fn lines(
        &self,
        ledger: &Ledger,
        account: AccountId,
        before: Seq,
        limit: usize,
    ) -> Result<StatementLines, LedgerError>;

    /// Holds that crashes left open, oldest first.
    async fn in_doubt(&self, ledger: &Ledger) -> Result<Vec<JournaledRecord>, LedgerError>;

    /// The usage of an account in the hours or days of `times`, with all that was recorded before the
    /// call.
    async fn usage(
        &self,
        ledger: &Ledger,
        account: AccountId,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<(UsageCell, UsageTotal)>, LedgerError>;

    /// The usage of an account in the hours or days of `times`, as of a few seconds ago.
    async fn usage_lately(
        &self,
        ledger: &Ledger,
        account: AccountId,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<(UsageCell, UsageTotal)>, LedgerError>;

    /// The usage of everybody in the hours or days of `times`, as of a few seconds ago.
    async fn usage_of_all(
        &self,
        ledger: &Ledger,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<UsageOfModel>, LedgerError>;

    /// Time of each key's last charge, a few seconds old at most.
    async fn keys_last_used(
        &self,
        ledger: &Ledger,
        account: AccountId,
    ) -> Result<HashMap<KeyId, UnixMs>, LedgerError>;

    /// Possible losses of the operator, with the last `limit` of them.
    async fn losses(&self, ledger: &Ledger, limit: usize) -> Result<LossReport, LedgerError>;

    /// The hold of an account's call that is open.
    async fn open_hold_of(
        &self,
        ledger: &Ledger,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<(HoldId, OpenHold)>, LedgerError>;

    /// The line with which a call of an account ended. Asked after [`Books::open_hold_of`], it misses no
    /// call that ends meanwhile.
    async fn end_of_call(
        &self,
        ledger: &Ledger,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<JournaledRecord>, LedgerError>;

    /// The first `limit` refunds of a hold.
    async fn refunds_of(
        &self,
        ledger: &Ledger,
        account: AccountId,
        hold: HoldId,
        limit: usize,
    ) -> Result<Vec<JournaledRecord>, LedgerError>;

    /// Charge of a settled hold; `None` if the account has no such hold.
    async fn charged(
        &self,
        ledger: &Ledger,
        account: AccountId,
        hold: HoldId,
    ) -> Result<Option<Nanousd>, LedgerError>;

    /// Money of an account that a silent node has on loan; `None` if the node is not silent or has
    /// none. [`LedgerError::NoFleet`] without a fleet.
    async fn in_suspense(
        &self,
        node: NodeId,
        account: AccountId,
    ) -> Result<Option<Nanousd>, LedgerError>;
}
