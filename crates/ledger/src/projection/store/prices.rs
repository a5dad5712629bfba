//! Rows of what customers pay in the place of the list, and of the prices that calls were charged by.

use std::sync::Arc;

use super::{Batch, RowSource, Store, StoreError, key, put, value};
use crate::projection::window::CustomerChanges;
use crate::records::price::{AccountPrices, PriceGroup, PriceNote};
use crate::rules::core::Core;
use crate::rules::shards::shard_index;
use tollgate_money::price::PriceVersion;
use tollgate_types::ids::AccountId;

/// Rows of accounts' price rules.
const PRICES: u8 = b'P';
/// Groups by their names.
const GROUP: u8 = b'Q';
/// Prices that calls were charged by.
pub(super) const NOTE: u8 = b'V';

/// Loads the prices of accounts and groups.
pub(super) fn load_prices(rows: &dyn RowSource, cores: &mut [Core]) -> Result<(), StoreError> {
    for row in rows.with_prefix(&[PRICES]) {
        let (account, prices): (AccountId, Arc<AccountPrices>) = postcard::from_bytes(&row?.1)?;
        let state = cores[shard_index(account)].state_mut(account);
        let state = state.ok_or_else(|| StoreError::new("prices of no account".to_owned()))?;
        state.customers.prices = Some(prices);
    }
    let operator = &mut cores[shard_index(AccountId::OPERATOR)].operator;
    for row in rows.with_prefix(&[GROUP]) {
        let group: Arc<PriceGroup> = postcard::from_bytes(&row?.1)?;
        operator.groups.insert(group.name.clone(), group);
    }
    Ok(())
}

/// Writes the price changes of a window.
pub(super) fn put_prices(batch: &mut Batch, changes: &CustomerChanges) -> Result<(), StoreError> {
    for row @ (account, _) in &changes.prices {
        put(batch, key(PRICES, &[&account.number().to_be_bytes()]), &row)?;
    }
    for (name, group) in &changes.groups {
        put(batch, key(GROUP, &[name.as_bytes()]), group)?;
    }
    Ok(())
}

impl Store {
    /// Writes the prices of a window that were not charged before: a price is in force from its first
    /// call.
    pub(super) fn put_notes(
        &self,
        batch: &mut Batch,
        changes: &CustomerChanges,
    ) -> Result<(), StoreError> {
        for note in changes.noted.iter().rev() {
            let row = key(NOTE, &[note.version.bytes(), note.source.as_bytes()]);
            if value::<PriceNote>(&self.db, &row)?.is_none() {
                put(batch, row, note)?;
            }
        }
        Ok(())
    }

    /// The prices of this version that calls were charged by, one for each place that they came from.
    pub(crate) fn price(&self, version: PriceVersion) -> Result<Vec<PriceNote>, StoreError> {
        self.notes(&key(NOTE, &[version.bytes()]))
    }

    /// All prices that calls were charged by, in no order.
    pub(crate) fn prices(&self) -> Result<Vec<PriceNote>, StoreError> {
        self.notes(&[NOTE])
    }

    fn notes(&self, prefix: &[u8]) -> Result<Vec<PriceNote>, StoreError> {
        let rows = self.db.scan_prefix(prefix);
        rows.map(|row| Ok(postcard::from_bytes(&row?.1)?)).collect()
    }
}
