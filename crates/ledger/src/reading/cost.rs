//! Cost of calls to the operator: recorded next to their charges, and summed by day, account, model
//! and upstream.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::ops::Range;
use std::sync::Arc;

use crate::memory::Ledger;
use crate::records::cost::{CallCost, MarginCell, MarginTotal};
use crate::records::error::LedgerError;
use crate::records::record::Record;

impl Ledger {
    /// Writes down what a call cost the operator. In memory; it is on disk with the next hold that is,
    /// some 50 ms later at most. What cannot be written is logged.
    pub fn record_cost(&self, costed: CallCost) {
        let (account, request) = (costed.account, costed.request);
        let mut core = self.shard(account).lock();
        if core.account(account).is_none() {
            log::error!("a cost of {} is of {account}, which is not here", costed.cost);
            return;
        }
        let cost = costed.cost;
        if self.commit(&mut core, Record::Costed(Arc::new(costed))).is_err() {
            log::error!("a cost of {cost} came after the ledger had closed: {request}");
        }
    }

    /// Cost and revenue of this node's calls in `days`, counted from 1970.
    ///
    /// # Errors
    /// [`LedgerError::Store`] and [`LedgerError::Stopped`].
    pub async fn margins(
        &self,
        days: Range<u32>,
    ) -> Result<Vec<(MarginCell, MarginTotal)>, LedgerError> {
        self.query(move |store| store.margins(days)).await
    }
}
