//! Debts of accounts: charges beyond everything that they could pay.
//!
//! A debt is paid first by whatever becomes available, a grant, a refund or what a hold did not need:
//! the payment is a record of its own in the same group. Only an operator gives a debt up.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use crate::memory::Ledger;
use crate::memory::act::ActorScope;
use crate::operators::admin::WriteReceipt;
use crate::records::error::LedgerError;
use crate::rules::core::Core;
use crate::rules::text::{check_note, check_text};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::AccountId;

impl ActorScope<'_> {
    /// Writes off `amount` of the account's debt, once per `id`, at the operator's expense. The debt falls by
    /// the amount; nothing becomes available.
    ///
    /// # Errors
    /// [`LedgerError::Conflict`] when the id was used with another amount,
    /// [`LedgerError::NotOwed`] for more than the debt, [`LedgerError::UnknownAccount`],
    /// [`LedgerError::Invalid`], also for the note, [`LedgerError::OtherRequest`],
    /// [`LedgerError::Unavailable`] and [`LedgerError::Stopped`].
    pub async fn write_off(
        &self,
        account: AccountId,
        id: &str,
        amount: Nanousd,
        note: &str,
    ) -> Result<WriteReceipt, LedgerError> {
        check_text(id)?;
        check_note(note)?;
        let decide = |locked: &crate::memory::write::LockedShards<'_>| {
            let core = locked.core(account);
            core.decide_write_off((account, id), amount, note, UnixMs::now())
        };
        self.give(("write_off", account, id), decide).await
    }
}

impl Ledger {
    /// Pays what an account owes out of what it has available, if there is both. The caller holds the
    /// lock of the account's shard since what made the money available was committed; where a crash
    /// comes between the two, the next start pays.
    pub(crate) fn pay_debt(&self, core: &mut Core, account: AccountId) {
        let Some(payment) = core.decide_payment(account, UnixMs::now) else { return };
        if self.commit(core, payment).is_err() {
            log::warn!("what {account} owes is paid at the next start: the ledger had closed");
        }
    }

    /// Pays what a crash has kept from being paid.
    pub(crate) fn pay_debts(&self) {
        for shard in &self.shards {
            let mut core = shard.lock();
            let accounts = core.accounts().filter(|account| !account.balance.payable().is_zero());
            let owing: Vec<_> = accounts.map(|account| account.id).collect();
            owing.into_iter().for_each(|account| self.pay_debt(&mut core, account));
        }
    }
}
