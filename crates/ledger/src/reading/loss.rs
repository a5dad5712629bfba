//! Possible losses of the operator: calls that an upstream may bill and no customer pays.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use crate::records::loss::LossCause;
use crate::records::loss::LossRecord;
use crate::records::loss::LossReport;
use crate::records::loss::LossSums;
use std::sync::Arc;

use crate::memory::Ledger;
use crate::records::error::LedgerError;
use crate::records::record::Record;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, KeyId, RequestId};

/// Maximum number of listed losses.
const LISTED_MAX: usize = 1000;

/// A loss as the gateway declares it.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Account of the call. None of its money moves.
    pub account: AccountId,
    /// API key of the call.
    pub key: KeyId,
    /// The public id of the model that was called.
    pub model: Arc<str>,
    /// Upstream that may bill for it.
    pub upstream: String,
    /// Id of the request.
    pub request: RequestId,
    /// Cause of the possible loss.
    pub cause: LossCause,
    /// Upper bound of the loss.
    pub amount: Nanousd,
}

impl Ledger {
    /// Writes down that a call may have cost the operator what no customer pays. In memory; it is on
    /// disk with the next hold that is, some 50 ms later at most. A loss of nothing is none. What cannot
    /// be written is logged.
    pub fn record_loss(&self, loss: Loss) {
        let Loss { account, key, model, upstream, request, cause, amount } = loss;
        if amount <= Nanousd::ZERO {
            return;
        }
        let (cause, at) = (cause.as_str().to_owned(), UnixMs::now());
        let lost = LossRecord { account, key, model, upstream, request, cause, amount, at };
        let mut core = self.shard(account).lock();
        if core.account(account).is_none() {
            log::error!("a loss of {amount} ({}) is of {account}, which is not here", lost.cause);
            return;
        }
        let cause = lost.cause.clone();
        if self.commit(&mut core, Record::Lost(Arc::new(lost))).is_err() {
            log::error!("a loss of {amount} ({cause}) came after the ledger had closed: {request}");
        }
    }

    /// Possible losses from this node's calls, by cause.
    #[must_use]
    pub fn loss_sums(&self) -> LossSums {
        let mut sums = LossSums::new();
        for shard in &self.shards {
            for (cause, sum) in &shard.lock().losses {
                sums.entry(cause.clone()).or_default().add(*sum);
            }
        }
        sums
    }

    /// Possible losses of the operator: sums by cause, and the last `limit` (at most 1,000) losses.
    /// In a fleet, those reported by all nodes.
    ///
    /// # Errors
    /// [`LedgerError::Store`] and [`LedgerError::Stopped`]; in a fleet [`LedgerError::Unavailable`].
    pub async fn losses(&self, limit: usize) -> Result<LossReport, LedgerError> {
        let limit = limit.min(LISTED_MAX);
        self.books.losses(self, limit).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_causes_are_short_words() {
        for cause in LossCause::ALL {
            let lost = LossRecord {
                account: AccountId::from_number(1),
                key: KeyId::from_number(1),
                model: "m".into(),
                upstream: "u".to_owned(),
                request: RequestId::from_number(1),
                cause: cause.to_string(),
                amount: Nanousd::new(1),
                at: UnixMs(1),
            };
            assert!(lost.is_sound(), "{cause}");
            assert!(!LossRecord { cause: "Retry again".to_owned(), ..lost.clone() }.is_sound());
            assert!(!LossRecord { cause: String::new(), ..lost.clone() }.is_sound());
            assert!(!LossRecord { amount: Nanousd::ZERO, ..lost }.is_sound());
        }
    }
}
