//! The money path: set money aside for a call, and end it exactly once.
//!
//! Everything here is decided in memory under the lock of the account's shard, and never waits for
//! a disk.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;

use crate::calls::lend::FundsRequest;
use crate::memory::Ledger;
use crate::memory::hold::Hold;
use crate::records::error::Refusal;
use crate::records::hold_end::VoidReason;
use crate::records::record::Record;
use crate::records::reservation::Reservation;
use crate::rules::core::Core;
use crate::rules::settlement::Settlement;
use tollgate_money::money::Nanousd;
use tollgate_money::price::PriceVersion;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, KeyId, RequestId, Seq};

/// Parameters of a hold.
#[derive(Clone, Debug)]
pub struct Reserve {
    /// Account that pays for the call.
    pub account: AccountId,
    /// API key of the call.
    pub key: KeyId,
    /// The public id of the model that is called.
    pub model: Arc<str>,
    /// Version of the price at which the call is charged.
    pub price: Option<PriceVersion>,
    /// Id of the request.
    pub request: RequestId,
    /// Maximum cost of the call. Negative values count as zero.
    pub amount: Nanousd,
    /// Minimum cost once an upstream has begun to process the call: the charge under
    /// [`RecoveryPolicy::Floor`](crate::RecoveryPolicy) if this process crashes meanwhile. Limited by
    /// `amount`.
    pub floor: Nanousd,
}

/// Payment of a settled call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostedCharge {
    /// Amount paid by the customer.
    pub charged: Nanousd,
    /// Debt: the part that the account could not pay. Later money pays it first.
    pub owed: Nanousd,
}

impl PostedCharge {
    /// Charge of a free call.
    pub const NOTHING: Self = Self { charged: Nanousd::ZERO, owed: Nanousd::ZERO };
}

impl Ledger {
    /// Sets money aside for a call. In a fleet it waits for money, where there may be some elsewhere,
    /// for a quarter of a second or as long as the treasury takes to answer; and where the treasury's
    /// answer is late for the term, for as long as it may still come.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed then.
    pub async fn admit(self: &Arc<Self>, reserve: Reserve) -> Result<Hold, Refusal> {
        let Reserve { account, key, amount, .. } = reserve;
        self.with_money(FundsRequest { account, key, amount }, || self.reserve(reserve.clone()))
            .await
    }

    /// Sets money aside for a call. In memory; see [`Hold::durable`] for when it is on disk.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed then.
    pub fn reserve(self: &Arc<Self>, reserve: Reserve) -> Result<Hold, Refusal> {
        let amount = reserve.amount.max(Nanousd::ZERO);
        let reservation = Arc::new(Reservation {
            account: reserve.account,
            key: reserve.key,
            model: reserve.model,
            price: reserve.price,
            request: reserve.request,
            amount,
            floor: reserve.floor.clamp(Nanousd::ZERO, amount),
            at: UnixMs::now(),
        });
        let Reserve { account, key, .. } = reserve;
        let decided = Arc::clone(&reservation);
        let seq = self.set_aside(account, amount, |core| core.decide_reserve(decided))?;
        Ok(Hold {
            ledger: Arc::clone(self),
            account,
            key,
            id: HoldId::from_number(seq),
            amount,
            reservation,
            last_seq: seq,
            written: Nanousd::ZERO,
            is_open: true,
        })
    }

    fn set_aside(
        &self,
        account: AccountId,
        amount: Nanousd,
        decide: impl FnOnce(&Core) -> Result<Record, Refusal>,
    ) -> Result<Seq, Refusal> {
        // Settlements of open holds still need disk space: new holds are refused before they take it.
        if self.journal.is_disk_full() {
            return Err(Refusal::DiskFull);
        }
        let Some(fleet) = &self.fleet else {
            let mut core = self.shard(account).lock();
            let record = decide(&core)?;
            return self.commit(&mut core, record).map_err(|_| Refusal::Stopped);
        };
        if !fleet.may_spend() {
            return Err(Refusal::CutOff);
        }
        // Decided and committed under one lock: otherwise two calls could hold the same money.
        let mut core = self.shard(account).lock();
        let record = decide(&core)?;
        let seq = self.commit(&mut core, record).map_err(|_| Refusal::Stopped)?;
        let is_low = core.passed(account, amount);
        // The lock is released first: the fleet takes its own locks, and calls of the account wait here.
        drop(core);
        if is_low {
            fleet.runs_low(account);
        }
        Ok(seq)
    }
}

impl Hold {
    /// Sets `amount` more aside of what is here. Nothing happens for an amount that is not above zero.
    ///
    /// # Errors
    /// [`Refusal`]; the hold is then what it was.
    pub fn extend(&mut self, amount: Nanousd) -> Result<(), Refusal> {
        if amount <= Nanousd::ZERO {
            return Ok(());
        }
        let (account, id, at) = (self.account, self.id, UnixMs::now());
        // Read before the extension moves `last_seq`, after which the hold counts as not durable.
        let written = self.durable_amount();
        self.last_seq = self
            .ledger
            .set_aside(account, amount, |core| core.decide_extend(account, id, amount, at))?;
        // The extension is not on disk yet. What was before it pays for bytes that are sent meanwhile.
        self.written = written;
        // The account's `held` has taken the same sum without overflow.
        self.amount = self.amount.saturating_add(amount);
        Ok(())
    }

    /// Sets `amount` more aside. In a fleet it waits for money as [`Ledger::admit`] does.
    ///
    /// # Errors
    /// [`Refusal`]; the hold is then what it was.
    pub async fn enlarge(&mut self, amount: Nanousd) -> Result<(), Refusal> {
        let ledger = Arc::clone(&self.ledger);
        let want = FundsRequest { account: self.account, key: self.key, amount };
        ledger.with_money(want, || self.extend(amount)).await
    }

    /// Brings what an extension by `amount` needs to this node of a fleet, and holds none of it: other
    /// calls may take it first. `None` where all of the money is here.
    #[must_use]
    pub fn fetch(
        &self,
        amount: Nanousd,
    ) -> Option<impl Future<Output = Result<(), Refusal>> + Send + use<>> {
        let (ledger, account, key, id) = (self.ledger(), self.account, self.key, self.id);
        ledger.shared_funds()?;
        Some(async move {
            let would_extend = || {
                if ledger.shared_funds().is_some_and(|funds| !funds.may_spend()) {
                    return Err(Refusal::CutOff);
                }
                let core = ledger.shard(account).lock();
                core.decide_extend(account, id, amount, UnixMs::now()).map(drop)
            };
            ledger.with_money(FundsRequest { account, key, amount }, would_extend).await
        })
    }

    /// Sets aside what `charge` lacks, or as much of it as a fleet has elsewhere. What is here needs
    /// no waiting: [`Hold::post`] takes it.
    pub async fn cover(&mut self, charge: Nanousd) {
        let lacks = charge.saturating_sub(self.amount);
        if lacks <= Nanousd::ZERO || self.ledger.shared_funds().is_none() {
            return;
        }
        let all = self.enlarge(lacks).await;
        if let Err(Refusal::Insufficient { available } | Refusal::Held { available, .. }) = all {
            // Others may take it meanwhile: what is not covered then is owed.
            self.enlarge(available.min(lacks)).await.ok();
        }
    }

    /// Ends the hold without a charge and begins another of its amount for a call of another model,
    /// atomically.
    ///
    /// # Errors
    /// [`Refusal::Stopped`] when the ledger has closed; nothing is held then.
    pub fn move_to(
        mut self,
        model: Arc<str>,
        price: Option<PriceVersion>,
        floor: Nanousd,
    ) -> Result<Self, Refusal> {
        let (account, key, amount) = (self.account, self.key, self.amount);
        let request = self.reservation.request;
        let (floor, at) = (floor.clamp(Nanousd::ZERO, amount), UnixMs::now());
        let reservation =
            Arc::new(Reservation { account, key, model, price, request, amount, floor, at });
        // One lock for both records, so that no other call takes the money between them. A crash between
        // the two leaves no hold, which costs the customer nothing.
        let reason = VoidReason::Replaced;
        let ledger = Arc::clone(&self.ledger);
        let mut core = ledger.shard(account).lock();
        self.is_open = false;
        let voided = Record::Voided { account, hold: self.id, reason, at };
        let moved = ledger
            .commit(&mut core, voided)
            .and_then(|_| ledger.commit(&mut core, Record::Reserved(Arc::clone(&reservation))));
        drop(core);
        let last_seq = moved.map_err(|_| Refusal::Stopped)?;
        let id = HoldId::from_number(last_seq);
        let (written, is_open) = (Nanousd::ZERO, true);
        Ok(Self { ledger, account, key, id, amount, reservation, last_seq, written, is_open })
    }

    /// Settles the hold with the cost of the call. A charge above the hold is taken from the account's
    /// available money, regardless of the key's limits, and the rest becomes debt. Returns at once; the
    /// record is on disk with the next hold, at most about 50 ms later.
    pub fn post(mut self, settlement: Settlement) -> PostedCharge {
        let Settlement { charge, usage, source } = settlement;
        let mut core = self.ledger.shard(self.account).lock();
        let post = core.decide_post(self.id, charge, (usage, source), UnixMs::now());
        let Some(post) = post else {
            // Only `Hold` ends a hold, and it does so once.
            log::error!("{} to be posted is not open: nothing is charged", self.id);
            self.is_open = false;
            return PostedCharge::NOTHING;
        };
        // The extension precedes the charge: every prefix of the journal keeps charges within holds.
        let committed = post
            .extension
            .map_or(Ok(0), |extension| self.ledger.commit(&mut core, extension))
            .and_then(|_| self.ledger.commit(&mut core, post.record));
        // Money released by this hold pays debts before the lock is released and a new hold can take it.
        self.ledger.pay_debt(&mut core, self.account);
        drop(core);
        self.is_open = false;
        if committed.is_err() {
            log::error!("{} was posted after the ledger had closed: it is in doubt", self.id);
        }
        PostedCharge { charged: post.charged, owed: post.owed }
    }
}
