//! What a ledger needs of the place where its accounts' money is, when not all of it is here: leased
//! money, figures of all who spend it, and the log of what people wrote.

use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::projection::grain::Grain;
use crate::projection::store::CallName;
use crate::projection::window::{UsageCell, UsageTotal};
use crate::records::error::LedgerError;
use crate::records::loss::Losses;
use crate::records::record::{Journaled, OpenHold};
use crate::rules::account::{Balance, Totals};
use crate::seam::standing::{Progress, Standing};
use crate::seam::tasks::TaskStore;
use crate::seam::writes::WriteLog;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, KeyId, NodeId, Seq};

/// Usage of one model by everybody within one hour or day: its number counted from 1970, the public
/// id of the model, and what was used and charged.
pub type UsageOfModel = (u32, Arc<str>, UsageTotal);

/// What a ledger that waited for leased money is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseWait {
    /// Money came: the hold may be tried again.
    Again,
    /// There is not enough, here or elsewhere.
    Short(Shortfall),
    /// Whoever lends it does not answer.
    CutOff,
}

/// Where the money is of an account that has not enough to lend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// What could be lent.
    pub available: Nanousd,
    /// What others have out: some of it may come back.
    pub elsewhere: Nanousd,
    /// What cannot be had now and is not spent.
    pub held: Nanousd,
    /// What the account owes: nothing is lent before it is paid.
    pub debt: Nanousd,
}

/// Money that several ledgers share: each spends what it was lent. A ledger without one has all of its
/// accounts' money itself.
#[async_trait]
pub trait SharedFunds: Any + Send + Sync {
    /// Which of those who share the money this ledger is.
    fn node(&self) -> NodeId;

    /// How it is doing as one of them.
    fn standing(&self, progress: Progress) -> Standing;

    /// The log of what people wrote, the same for all.
    fn writes(&self) -> &dyn WriteLog;

    /// Where tasks stand.
    fn tasks(self: Arc<Self>) -> Arc<dyn TaskStore>;

    /// The time by the ledger's own clock, from any moment on.
    fn now(&self) -> Duration;

    /// Whether holds may be made now: the lease is in its term.
    fn may_spend(&self) -> bool;

    /// Little is left here of what was lent of an account.
    fn runs_low(&self, account: AccountId);

    /// How many spend the money, as far as is known.
    fn nodes(&self) -> u32;

    /// True where the treasury had less of an account than this node wanted when they last spoke.
    fn is_scarce(&self, account: AccountId) -> bool;

    /// Waits for a renewal that is late, if the term has ended only now. Says whether holds may be made.
    async fn outlast(&self) -> bool;

    /// Waits until `amount` of an account may be here, for which someone has waited since `since`.
    async fn wait_for(&self, account: AccountId, amount: Nanousd, since: Duration) -> LeaseWait;

    /// Waits for a larger share of what a key may spend. Says whether it was answered.
    async fn wait_for_share(&self, account: AccountId, key: KeyId, amount: Nanousd) -> bool;

    /// At most `limit` lines of an account's statement from before `before`, newest first.
    async fn entries(
        &self,
        account: AccountId,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<Journaled>, LedgerError>;

    /// Holds that crashes left open, oldest first.
    async fn in_doubt(&self) -> Result<Vec<Journaled>, LedgerError>;

    /// The usage of an account in the hours or days of `times`.
    async fn usage(
        &self,
        account: AccountId,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<(UsageCell, UsageTotal)>, LedgerError>;

    /// The usage of everybody in the hours or days of `times`.
    async fn usage_of_all(
        &self,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<UsageOfModel>, LedgerError>;

    /// When each key of an account was last charged for a call.
    async fn keys_last_used(
        &self,
        account: AccountId,
    ) -> Result<HashMap<KeyId, UnixMs>, LedgerError>;

    /// What accounts have and what was written off of each, by account.
    async fn balances(
        &self,
        accounts: &[AccountId],
    ) -> Result<HashMap<AccountId, (Balance, Nanousd)>, LedgerError>;

    /// What all accounts have together.
    async fn totals(&self) -> Result<Totals, LedgerError>;

    /// What calls may have cost the operator, with the last `limit` losses.
    async fn losses(&self, limit: usize) -> Result<Losses, LedgerError>;

    /// The hold of a task's call that is open.
    async fn open_hold_of(
        &self,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<(HoldId, OpenHold)>, LedgerError>;

    /// How a call ended.
    async fn end_of_call(
        &self,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<Journaled>, LedgerError>;

    /// At most `limit` refunds of a hold, the first ones.
    async fn refunds_of(
        &self,
        account: AccountId,
        hold: HoldId,
        limit: usize,
    ) -> Result<Vec<Journaled>, LedgerError>;

    /// What a settled hold was charged, whoever settled it.
    async fn charged(
        &self,
        account: AccountId,
        hold: HoldId,
    ) -> Result<Option<Nanousd>, LedgerError>;

    /// What a silent node has out of an account; `None` if it is not silent, or has nothing.
    async fn in_suspense(
        &self,
        node: NodeId,
        account: AccountId,
    ) -> Result<Option<Nanousd>, LedgerError>;
}
