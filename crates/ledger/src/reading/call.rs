//! Money of one call, from its hold to its last refund.

use crate::memory::Ledger;
use crate::projection::store::CallName;
use crate::reading::statement::{self, StatementCall, StatementEntry};
use crate::records::error::LedgerError;
use crate::records::record::JournaledRecord;
use crate::records::reservation::OpenHold;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId};

/// Maximum number of listed refunds of one call.
const REFUNDS_MAX: usize = 100;

/// One call, as far as money is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallMoney {
    /// The call, with everything that was set aside for it by its end, or by now.
    pub call: StatementCall,
    /// Initial amount of the hold.
    pub reserved: Nanousd,
    /// Time of the hold.
    pub reserved_at: UnixMs,
    /// End of the call; `None` while it is open.
    pub end: Option<StatementEntry>,
    /// Refunds of the call, oldest first.
    pub refunds: Vec<StatementEntry>,
}

impl Ledger {
    /// Money of an account's call. `None` if there is no such call, or if the search ends before it
    /// is reached. In a fleet the call may be any reported call of any node; its refunds have no
    /// sequence numbers.
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
        let is_match = |id: HoldId, hold: &OpenHold| match name {
            CallName::Hold(name, _) => id == name,
            CallName::Request(name, _) => hold.reservation.request == name,
        };
        core.holds()
            .find(|(id, hold)| hold.reservation.account == account && is_match(*id, hold))
            .map(|(id, hold)| (id, hold.clone()))
    }
}

/// The end of a call, and the hold that it ended.
fn parts(ended: JournaledRecord) -> Option<(JournaledRecord, OpenHold, HoldId)> {
    let (id, hold) = (ended.record.open_hold()?, ended.hold.clone()?);
    Some((ended, hold, id))
}

fn money(
    id: HoldId,
    hold: &OpenHold,
    end: Option<StatementEntry>,
    refunds: Vec<StatementEntry>,
) -> CallMoney {
    CallMoney {
        call: statement::call_of(id, hold),
        reserved: hold.reservation.amount,
        reserved_at: hold.reservation.at,
        end,
        refunds,
    }
}
