//! What happened to the money of one call, from its hold to its last refund.

use crate::memory::ledger::Ledger;
use crate::projection::store::CallName;
use crate::reading::statement::{self, Call, Entry};
use crate::records::error::LedgerError;
use crate::records::record::{Journaled, OpenHold};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId};

/// The most refunds of one call that are given, the first ones.
const REFUNDS_MAX: usize = 100;

/// One call, as far as money is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallMoney {
    /// The call, with everything that was set aside for it by its end, or by now.
    pub call: Call,
    /// What was set aside at first.
    pub reserved: Nanousd,
    /// When that was.
    pub reserved_at: UnixMs,
    /// How it ended; `None` while it is open.
    pub end: Option<Entry>,
    /// What was given back since, the first refund first.
    pub refunds: Vec<Entry>,
}

impl Ledger {
    /// What happened to the money of a call of an account. `None` if there is no such call, or if it
    /// lies so far behind the place where it is looked for that the search ends before. In a fleet it
    /// is a call of any node that has reported it; the refunds have no places there.
    ///
    /// # Errors
    /// [`LedgerError::UnknownAccount`], [`LedgerError::Store`] and [`LedgerError::Stopped`]; in a fleet
    /// [`LedgerError::Unavailable`].
    pub async fn call_money(
        &self,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<CallMoney>, LedgerError> {
        self.account(account).ok_or(LedgerError::UnknownAccount(account))?;
        let books = &self.books;
        // In this order a call that ends meanwhile is not missed.
        if let Some((id, hold)) = books.open_hold_of(self, account, name).await? {
            return Ok(Some(money(id, &hold, None, Vec::new())));
        }
        let end = books.end_of_call(self, account, name).await?;
        let Some((ended, hold, id)) = end.and_then(parts) else { return Ok(None) };
        let refunds = books.refunds_of(self, account, id, REFUNDS_MAX).await?;
        let refunds = refunds.into_iter().filter_map(statement::entry).collect();
        Ok(Some(money(id, &hold, statement::entry(ended), refunds)))
    }

    /// The hold of an account's call that is open here.
    pub(crate) fn open_call(
        &self,
        account: AccountId,
        name: CallName,
    ) -> Option<(HoldId, OpenHold)> {
        let core = self.shard(account).lock();
        let is_meant = |id: HoldId, hold: &OpenHold| match name {
            CallName::Hold(meant, _) => id == meant,
            CallName::Request(meant, _) => hold.reservation.request == meant,
        };
        core.holds()
            .find(|(id, hold)| hold.reservation.account == account && is_meant(*id, hold))
            .map(|(id, hold)| (id, hold.clone()))
    }
}

/// The end of a call, and the hold that it ended.
fn parts(ended: Journaled) -> Option<(Journaled, OpenHold, HoldId)> {
    let (id, hold) = (ended.record.open_hold()?, ended.hold.clone()?);
    Some((ended, hold, id))
}

fn money(id: HoldId, hold: &OpenHold, end: Option<Entry>, refunds: Vec<Entry>) -> CallMoney {
    CallMoney {
        call: statement::call_of(id, hold),
        reserved: hold.reservation.amount,
        reserved_at: hold.reservation.at,
        end,
        refunds,
    }
}
