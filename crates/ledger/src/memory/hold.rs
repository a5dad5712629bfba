//! Money that is set aside, for as long as its owner has it: when it is on disk, and its end without a
//! charge. A [`Hold`] cannot be copied, and ending it consumes it: to settle twice does not compile.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;

use crate::memory::Ledger;
use crate::records::error::LedgerError;
use crate::records::hold_end::VoidReason;
use crate::records::record::Record;
use crate::records::reservation::Reservation;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, KeyId, Seq};

/// Money set aside for one call. Ends with [`Hold::post`] or [`Hold::void`]; dropping it without
/// either gives the money back and is logged as the bug that it is.
#[must_use = "a hold that is dropped gives the money back"]
#[derive(Debug)]
pub struct Hold {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) account: AccountId,
    pub(crate) key: KeyId,
    pub(crate) id: HoldId,
    pub(crate) amount: Nanousd,
    /// Reservation that the hold covers.
    pub(crate) reservation: Arc<Reservation>,
    /// Position of the record of this hold, or of its last extension.
    pub(crate) last_seq: Seq,
    /// The amount that is on disk whether `last_seq` is or not.
    pub(crate) written: Nanousd,
    pub(crate) is_open: bool,
}

impl Hold {
    /// Id of the hold, which names it in the journal.
    #[must_use]
    pub fn id(&self) -> HoldId {
        self.id
    }

    /// Amount set aside, extensions included.
    #[must_use]
    pub fn amount(&self) -> Nanousd {
        self.amount
    }

    /// True if the hold is on disk, so that response bytes may be sent.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.ledger.journal.is_durable(self.last_seq)
    }

    /// The amount that a crash at this moment would find on disk: what was held before the last extension,
    /// as long as that is being written. Bytes up to it may be sent.
    #[must_use]
    pub fn durable_amount(&self) -> Nanousd {
        if self.is_durable() { self.amount } else { self.written }
    }

    /// The account's money on this node that no hold covers.
    #[must_use]
    pub fn available(&self) -> Nanousd {
        self.ledger.available_and_held(self.account).0
    }

    /// Leaves a trace of the call that outlives this process, for its upstream is about to be asked:
    /// the hold on disk, or a note of it. Usually this does not wait.
    ///
    /// # Errors
    /// [`LedgerError::Stopped`]: the call must not be sent then.
    pub async fn note_sent(&self) -> Result<(), LedgerError> {
        self.ledger.note_sent(self.id.number(), &self.reservation).await
    }

    /// Waits until it is on disk. Usually it is by now, and this returns at once.
    ///
    /// # Errors
    /// [`LedgerError::Stopped`] when the ledger closed before that.
    pub async fn durable(&self) -> Result<(), LedgerError> {
        Ok(self.ledger.journal.durable(self.last_seq).await?)
    }

    /// Ledger of the hold.
    pub(crate) fn ledger(&self) -> Arc<Ledger> {
        Arc::clone(&self.ledger)
    }

    /// A task has taken it over: only the task's end ends it from here on.
    pub(crate) fn pass_on(mut self) {
        self.is_open = false;
    }

    /// Ends the hold without a charge.
    pub fn void(mut self, reason: VoidReason) {
        self.end(reason);
    }

    fn end(&mut self, reason: VoidReason) {
        self.is_open = false;
        let (account, hold, at) = (self.account, self.id, UnixMs::now());
        let record = Record::Voided { account, hold, reason, at };
        let mut core = self.ledger.shard(account).lock();
        let committed = self.ledger.commit(&mut core, record);
        self.ledger.pay_debt(&mut core, account);
        drop(core);
        if committed.is_err() {
            log::error!("{hold} was voided after the ledger had closed: it is in doubt");
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.is_open {
            log::error!("{} of {} was dropped without an end: it is voided", self.id, self.account);
            self.end(VoidReason::Abandoned);
        }
    }
}
