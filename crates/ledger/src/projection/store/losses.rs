//! Rows of what calls may have cost the operator: each, and their sums by account and cause.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Batch, RowSource, Store, StoreError, key, put};
use crate::records::loss::{ListedLoss, LossRecord, LossSum, LossSums};
use crate::rules::core::Core;
use crate::rules::shards::shard_index;
use tollgate_types::ids::{AccountId, Seq};

/// Losses by their place.
pub(super) const LOSS: u8 = b'x';
/// Their sums by account and cause.
const LOSS_SUM: u8 = b'y';

/// Loads the sums.
pub(super) fn load_losses(rows: &dyn RowSource, cores: &mut [Core]) -> Result<(), StoreError> {
    for row in rows.with_prefix(&[LOSS_SUM]) {
        let (account, cause, sum): (AccountId, String, LossSum) = postcard::from_bytes(&row?.1)?;
        let restored = cores[shard_index(account)].restore_loss(account, cause, sum);
        restored.ok_or_else(|| StoreError::new("a loss of no account".to_owned()))?;
    }
    Ok(())
}

impl Store {
    /// Writes losses, and adds them to the sums.
    pub(super) fn put_losses(
        &self,
        batch: &mut Batch,
        losses: &[(Seq, Arc<LossRecord>)],
    ) -> Result<(), StoreError> {
        let mut sums: BTreeMap<AccountId, LossSums> = BTreeMap::new();
        for (seq, lost) in losses {
            put(batch, key(LOSS, &[&seq.to_be_bytes()]), &(seq, lost))?;
            lost.add_to(sums.entry(lost.account).or_default());
        }
        for (account, sums) in sums {
            for (cause, more) in sums {
                let row = key(LOSS_SUM, &[&account.number().to_be_bytes(), cause.as_bytes()]);
                let before: Option<(AccountId, String, LossSum)> = self.value(&row)?;
                let mut sum = before.map(|(.., sum)| sum).unwrap_or_default();
                sum.add(more);
                put(batch, row, &(account, cause, sum))?;
            }
        }
        Ok(())
    }

    /// The last `limit` losses, newest first.
    pub(crate) fn losses(&self, limit: usize) -> Result<Vec<ListedLoss>, StoreError> {
        let rows = self.db.scan_prefix([LOSS]).rev().take(limit);
        rows.map(|row| {
            let (seq, lost) = postcard::from_bytes(&row?.1)?;
            Ok(ListedLoss { seq, lost })
        })
        .collect()
    }
}
