//! Leased money of a node: taken in, given back, waited for.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use crate::memory::Ledger;
use crate::ports::funds::{LeaseWait, SharedFunds, Shortfall};
use crate::records::error::Refusal;
use crate::records::record::Record;
use tollgate_money::money::Nanousd;
use tollgate_options::ledger::RecoveryPolicy;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, KeyId, Seq};

/// Request to hold money of an account.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FundsRequest {
    /// Account that pays for the call.
    pub(crate) account: AccountId,
    /// API key of the call.
    pub(crate) key: KeyId,
    /// Amount to set aside.
    pub(crate) amount: Nanousd,
}

impl Ledger {
    /// The money that this ledger shares with others; `None` when it has all of it.
    #[must_use]
    pub fn shared_funds(&self) -> Option<&Arc<dyn SharedFunds>> {
        self.fleet.as_ref()
    }

    /// The data directory of the ledger.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Sets money aside with `set_aside`, which wants so much. In a fleet it waits, and tries again,
    /// while there may be more elsewhere: of the account, or of what its key may spend.
    pub(crate) async fn with_money<T>(
        &self,
        want: FundsRequest,
        mut set_aside: impl FnMut() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        // Alone, nothing can come from elsewhere: a refusal is final and costs no wait.
        let Some(fleet) = &self.fleet else { return set_aside() };
        let FundsRequest { account, amount, .. } = want;
        let since = fleet.now();
        let mut capped_since = None;
        loop {
            match set_aside() {
                Err(Refusal::ShareUsed { capped, lacks, left }) => {
                    let standing = (capped, lacks, left);
                    self.wait_for_share(&**fleet, want, standing, &mut capped_since).await?;
                    continue;
                }
                // The term is over, but its renewal may only be late: calls wait a moment for it.
                Err(Refusal::CutOff) if fleet.outlast().await => continue,
                Err(Refusal::Insufficient { .. } | Refusal::Held { .. }) => {}
                other => return other,
            }
            match fleet.wait_for(account, amount, since).await {
                LeaseWait::Retry => {}
                LeaseWait::Short(short) => return Err(self.short(account, amount, short)),
                LeaseWait::CutOff => return Err(Refusal::CutOff),
            }
        }
    }

    /// Error for a customer whose account has too little money at the treasury.
    fn short(&self, account: AccountId, amount: Nanousd, short: Shortfall) -> Refusal {
        let own = self.account(account).map(|account| account.balance).unwrap_or_default();
        if short.debt > Nanousd::ZERO {
            return Refusal::InDebt { debt: short.debt, available: short.available };
        }
        let available = short.available.saturating_add(own.available);
        let held = short.elsewhere.saturating_add(short.held).saturating_add(own.held);
        if amount > available.saturating_add(held) {
            Refusal::Insufficient { available }
        } else {
            Refusal::Held { available, held }
        }
    }

    /// True where `times` as much as `amount` is available of an account, or where a fleet has plenty of
    /// it elsewhere, as far as this node has heard.
    #[must_use]
    pub fn has_plenty(&self, account: AccountId, amount: Nanousd, times: i64) -> bool {
        let least = amount.get().checked_mul(times).map_or(Nanousd::MAX, Nanousd::new);
        let core = self.shard(account).lock();
        let balance = core.account(account).map(|account| account.balance);
        let has_plenty = balance.is_some_and(|balance| balance.available >= least);
        drop(core);
        has_plenty || self.fleet.as_ref().is_some_and(|fleet| !fleet.is_scarce(account))
    }

    /// Ids of all open holds.
    #[must_use]
    pub fn open_hold_ids(&self) -> Vec<HoldId> {
        let shards = self.shards.iter();
        shards
            .flat_map(|shard| shard.lock().holds().map(|(id, _)| id).collect::<Vec<_>>())
            .collect()
    }

    /// Ends the holds that a crash left open: those that went to the treasury with their task, which
    /// the crash has cut off from this, and the others by `policy`. Says how many were in doubt.
    pub fn end_left_open(&self, policy: RecoveryPolicy, handed_over: &HashSet<HoldId>) -> usize {
        let at = UnixMs::now();
        let mut in_doubt = 0_usize;
        for shard in &self.shards {
            let mut core = shard.lock();
            let open: Vec<_> =
                core.holds().map(|(id, hold)| (id, hold.reservation.account)).collect();
            for (hold, account) in open {
                // The treasury has this hold already: to charge or void it here would settle it a second
                // time.
                let record = if handed_over.contains(&hold) {
                    Some(Record::HandedOver { account, hold, at })
                } else {
                    in_doubt = in_doubt.saturating_add(1);
                    core.decide_recovery(hold, policy, at)
                };
                if let Some(record) = record
                    && self.commit(&mut core, record).is_err()
                {
                    log::error!("{hold} was ended after the ledger had closed: it is in doubt");
                }
            }
        }
        in_doubt
    }

    /// Gives back all money that no hold covers.
    pub fn give_back_everything(&self) {
        for account in self.accounts() {
            self.give_back(account.id, account.balance.available);
        }
    }

    /// Returns `amount` of the leased available money, if there is that much.
    pub fn give_back(&self, account: AccountId, amount: Nanousd) -> bool {
        let mut core = self.shard(account).lock();
        let available = core.account(account).map(|account| account.balance.available);
        // Checked under the lock: a call may have taken the money since the borrower decided to return it.
        if amount <= Nanousd::ZERO || available.is_none_or(|available| available < amount) {
            return false;
        }
        let record = Record::Returned { account, amount, at: UnixMs::now() };
        self.commit(&mut core, record).is_ok()
    }

    /// Money of an account that is free, and money that open holds cover.
    pub fn available_and_held(&self, account: AccountId) -> (Nanousd, Nanousd) {
        let balance = self.account(account).map(|account| account.balance).unwrap_or_default();
        (balance.available, balance.held)
    }

    /// Money reserved from an account since the last call of this method.
    pub fn reserved(&self, account: AccountId) -> Nanousd {
        self.shard(account).lock().pace(account).reserved
    }

    /// Adds leased money to an account.
    pub fn take_in(&self, account: AccountId, amount: Nanousd) {
        let record = Record::Leased { account, amount, at: UnixMs::now() };
        if self.commit(&mut self.shard(account).lock(), record).is_err() {
            // The next start finds that it has nothing, and the treasury takes it back.
            log::warn!("{amount} of {account} were lent after the ledger had closed");
        }
    }

    /// Notifies the lender once when an account has less than `below` here.
    pub fn watch(&self, account: AccountId, below: Nanousd) {
        self.shard(account).lock().watch(account, below);
    }

    /// Waits until everything recorded so far is on disk and returns its last position; `None` if the ledger
    /// closes first.
    pub async fn on_disk(&self) -> Option<Seq> {
        let last = self.journal.last_seq();
        self.journal.durable(last).await.ok().map(|()| last)
    }

    /// A hold has gone to the treasury with its task.
    pub fn hand_over(&self, account: AccountId, hold: HoldId) {
        let mut core = self.shard(account).lock();
        if core.hold(hold).is_none() {
            return;
        }
        let record = Record::HandedOver { account, hold, at: UnixMs::now() };
        if self.commit(&mut core, record).is_err() {
            // The next start asks the treasury which holds have gone.
            log::warn!("{hold} went to the treasury after the ledger had closed");
        }
    }
}
