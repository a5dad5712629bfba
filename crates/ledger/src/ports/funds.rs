//! Port for shared money: leases, figures of all nodes, and the log of writes.

use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::ports::node_status::{JournalProgress, NodeStatus};
use crate::ports::tasks::TaskStore;
use crate::ports::writes::WriteLog;
use crate::projection::grain::Grain;
use crate::projection::store::CallName;
use crate::projection::window::{UsageCell, UsageTotal};
use crate::records::error::LedgerError;
use crate::records::loss::LossReport;
use crate::records::record::JournaledRecord;
use crate::records::reservation::OpenHold;
use crate::rules::account::{Balance, Totals};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, KeyId, NodeId, Seq};

/// Usage of one model by everybody within one hour or day: its number counted from 1970, the public
/// id of the model, and what was used and charged.
pub type UsageOfModel = (u32, Arc<str>, UsageTotal);

/// Result of waiting for leased money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseWait {
    /// Money came: the hold may be tried again.
    Retry,
    /// The account lacks money, here and in the rest of the fleet.
    Short(Shortfall),
    /// The lender is unreachable.
    CutOff,
}

/// Location of the money of an account that the treasury cannot lend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortfall {
    /// Amount available to lend.
    pub available: Nanousd,
    /// Amount on loan to other nodes; some of it may come back.
    pub elsewhere: Nanousd,
    /// Amount that is neither available now nor spent.
    pub held: Nanousd,
    /// Debt of the account; nothing is lent before it is paid.
    pub debt: Nanousd,
}

/// Money that several ledgers share: each spends what it was lent. A ledger without one has all of its
/// accounts' money itself.
#[async_trait]
pub trait SharedFunds: Any + Send + Sync {
    /// Id of this node.
    fn node(&self) -> NodeId;

    /// Status of this node.
    fn node_status(&self, progress: JournalProgress) -> NodeStatus;

    /// The log of writes that all nodes share.
    fn writes(&self) -> &dyn WriteLog;

    /// Store of the tasks that all nodes share.
    fn tasks(self: Arc<Self>) -> Arc<dyn TaskStore>;

    /// The time by the ledger's own clock, from any moment on.
    fn now(&self) -> Duration;

    /// True if holds may be made now: the lease's term has not ended.
    fn may_spend(&self) -> bool;

    /// Little is left here of what was lent of an account.
    fn runs_low(&self, account: AccountId);

    /// Number of nodes that spend the money, as far as known.
    fn nodes(&self) -> u32;

    /// True where the treasury had less of an account than this node wanted when they last spoke.
    fn is_scarce(&self, account: AccountId) -> bool;

    /// Waits for a renewal that is late, if the term has ended only now. Says whether holds may be made.
    async fn outlast(&self) -> bool;

    /// Waits until `amount` of an account may be here, for which someone has waited since `since`.
    async fn wait_for(&self, account: AccountId, amount: Nanousd, since: Duration) -> LeaseWait;

    /// Waits for a larger share of what a key may spend. Says whether it was answered.
    async fn wait_for_share(&self, account: AccountId, key: KeyId, amount: Nanousd) -> bool;

    /// At most `limit` statement lines of an account before `before`, newest first.
    async fn entries(
        &self,
        account: AccountId,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<JournaledRecord>, LedgerError>;

    /// Holds that crashes left open, oldest first.
    async fn in_doubt(&self) -> Result<Vec<JournaledRecord>, LedgerError>;

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

    /// Time of each key's last charge.
    async fn keys_last_used(
        &self,
        account: AccountId,
    ) -> Result<HashMap<KeyId, UnixMs>, LedgerError>;

    /// Balance and written-off amount of these accounts.
    async fn balances(
        &self,
        accounts: &[AccountId],
    ) -> Result<HashMap<AccountId, (Balance, Nanousd)>, LedgerError>;

    /// Sums over all accounts.
    async fn totals(&self) -> Result<Totals, LedgerError>;

    /// Possible losses of the operator, with the last `limit` of them.
    async fn losses(&self, limit: usize) -> Result<LossReport, LedgerError>;

    /// The hold of a task's call that is open.
    async fn open_hold_of(
        &self,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<(HoldId, OpenHold)>, LedgerError>;

    /// Records the end of a call.
    async fn end_of_call(
        &self,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<JournaledRecord>, LedgerError>;

    /// The first `limit` refunds of a hold.
    async fn refunds_of(
        &self,
        account: AccountId,
        hold: HoldId,
        limit: usize,
    ) -> Result<Vec<JournaledRecord>, LedgerError>;

    /// Charge of a settled hold, whichever node settled it.
    async fn charged(
        &self,
        account: AccountId,
        hold: HoldId,
    ) -> Result<Option<Nanousd>, LedgerError>;

    /// Money of an account that a silent node has on loan; `None` if the node is not silent or has
    /// none.
    async fn in_suspense(
        &self,
        node: NodeId,
        account: AccountId,
    ) -> Result<Option<Nanousd>, LedgerError>;
}
