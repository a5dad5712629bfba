//! What a ledger does with leased money: it takes it in, gives it back, and waits for it.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::error::Refusal;
use super::hold::{Hold, Reserve};
use super::record::Record;
use super::report::Reporter;
use super::{AccountId, HoldId, KeyId, Ledger, RecoveryPolicy, Seq};
use crate::clock::UnixMs;
use crate::fleet::Fleet;
use crate::fleet::borrower::{Local, Unreadable, Verdict};
use crate::fleet::lease::{Report, Short};
use crate::money::Nanousd;

/// Money that is to be set aside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    /// Whose.
    pub(super) account: AccountId,
    /// By which key.
    pub(super) key: KeyId,
    /// How much.
    pub(super) amount: Nanousd,
}

impl Ledger {
    /// The fleet that this ledger is a node of.
    #[must_use]
    pub fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.fleet.as_ref()
    }

    /// The data directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Sets money aside for a call. In a fleet it waits for money, where there may be some elsewhere,
    /// for a quarter of a second or as long as the treasury takes to answer; and where the treasury's
    /// answer is late for the term, for as long as it may still come.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed then.
    pub async fn admit(self: &Arc<Self>, reserve: Reserve) -> Result<Hold, Refusal> {
        let Reserve { account, key, amount, .. } = reserve;
        self.with_money(Want { account, key, amount }, || self.reserve(reserve.clone())).await
    }

    /// Sets money aside with `set_aside`, which wants so much. In a fleet it waits, and tries again,
    /// while there may be more elsewhere: of the account, or of what its key may spend.
    pub(super) async fn with_money<T>(
        &self,
        want: Want,
        mut set_aside: impl FnMut() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let Some(fleet) = &self.fleet else { return set_aside() };
        let Want { account, amount, .. } = want;
        let since = fleet.now();
        let mut capped_since = None;
        loop {
            match set_aside() {
                Err(Refusal::ShareUsed { capped, lacks, left }) => {
                    let standing = (capped, lacks, left);
                    self.wait_for_share(fleet, want, standing, &mut capped_since).await?;
                    continue;
                }
                Err(Refusal::CutOff) if fleet.outlast().await => continue,
                Err(Refusal::Insufficient { .. } | Refusal::Held { .. }) => {}
                other => return other,
            }
            match fleet.wait_for(account, amount, since).await {
                Verdict::Again => {}
                Verdict::Refused(short) => return Err(self.short(account, amount, short)),
                Verdict::CutOff => return Err(Refusal::CutOff),
            }
        }
    }

    /// What a customer is told whose account the treasury has not enough of.
    fn short(&self, account: AccountId, amount: Nanousd, short: Short) -> Refusal {
        let own = self.account(account).map(|account| account.balance).unwrap_or_default();
        let sum = |parts: [Nanousd; 2]| parts[0].checked_add(parts[1]).unwrap_or(Nanousd::MAX);
        let available = sum([short.available, own.available]);
        let held = sum([sum([short.elsewhere, short.held]), own.held]);
        if amount > sum([available, held]) {
            Refusal::Insufficient { available }
        } else {
            Refusal::Held { available, held }
        }
    }

    /// The holds that are open now.
    #[must_use]
    pub(crate) fn open_hold_ids(&self) -> Vec<HoldId> {
        let shards = self.shards.iter();
        shards
            .flat_map(|shard| shard.lock().holds().map(|(id, _)| id).collect::<Vec<_>>())
            .collect()
    }

    /// Ends the holds that a crash left open: those that went to the treasury with their task, which
    /// the crash has cut off from this, and the others by `policy`. Says how many were in doubt.
    pub(crate) fn end_left_open(
        &self,
        policy: RecoveryPolicy,
        handed_over: &HashSet<HoldId>,
    ) -> usize {
        let at = UnixMs::now();
        let mut in_doubt = 0_usize;
        for shard in &self.shards {
            let mut core = shard.lock();
            let open: Vec<_> =
                core.holds().map(|(id, hold)| (id, hold.reservation.account)).collect();
            for (hold, account) in open {
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
    pub(crate) fn give_back_everything(&self) {
        for account in self.accounts() {
            self.give_back(account.id, account.balance.available);
        }
    }

    /// Takes `amount` of what is available out of the ledger, if so much is there.
    fn give_back(&self, account: AccountId, amount: Nanousd) -> bool {
        let mut core = self.shard(account).lock();
        let available = core.account(account).map(|account| account.balance.available);
        if amount <= Nanousd::ZERO || available.is_none_or(|available| available < amount) {
            return false;
        }
        let record = Record::Returned { account, amount, at: UnixMs::now() };
        self.commit(&mut core, record).is_ok()
    }

    /// A hold has gone to the treasury with its task.
    pub(crate) fn hand_over(&self, account: AccountId, hold: HoldId) {
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

/// A node's own money, as its borrower sees it.
pub(crate) struct LocalMoney {
    ledger: Arc<Ledger>,
    reporter: Reporter,
}

impl LocalMoney {
    /// The money of this ledger.
    pub(crate) fn new(ledger: &Arc<Ledger>) -> Self {
        Self { ledger: Arc::clone(ledger), reporter: Reporter::new(&ledger.dir) }
    }

    /// Waits until all that was recorded is on disk, and says how far that is.
    fn on_disk(&self) -> Option<Seq> {
        let journal = &self.ledger.journal;
        let last = journal.last_seq();
        let runtime = tokio::runtime::Handle::current();
        runtime.block_on(journal.durable(last)).ok().map(|()| last)
    }
}

impl Local for LocalMoney {
    fn available(&self, account: AccountId) -> Nanousd {
        let account = self.ledger.account(account);
        account.map(|account| account.balance.available).unwrap_or_default()
    }

    fn held(&self, account: AccountId) -> Nanousd {
        self.ledger.account(account).map(|account| account.balance.held).unwrap_or_default()
    }

    fn reserved(&self, account: AccountId) -> Nanousd {
        self.ledger.shard(account).lock().pace(account).reserved
    }

    fn give_back(&mut self, account: AccountId, amount: Nanousd) -> bool {
        self.ledger.give_back(account, amount)
    }

    fn take_in(&mut self, account: AccountId, amount: Nanousd) {
        let record = Record::Leased { account, amount, at: UnixMs::now() };
        if self.ledger.commit(&mut self.ledger.shard(account).lock(), record).is_err() {
            // The next start finds that it has nothing, and the treasury takes it back.
            log::warn!("{amount} of {account} were lent after the ledger had closed");
        }
    }

    fn watch(&mut self, account: AccountId, below: Nanousd) {
        self.ledger.shard(account).lock().watch(account, below);
    }

    fn report(&mut self, from: Seq) -> Result<Option<Report>, Unreadable> {
        let to = self.on_disk().ok_or(Unreadable)?;
        self.reporter.read(from, to).map_err(|error| {
            log::error!("the journal cannot be reported: {error}");
            Unreadable
        })
    }
}
