//! Rows of what calls cost and brought in, by day, account, model and upstream.

use std::ops::Range;

use super::{Batch, Store, StoreError, key, put};
use crate::projection::window::Window;
use crate::records::cost::{MarginCell, MarginTotal};

pub(super) const MARGIN: u8 = b'G';

impl Store {
    /// Adds the costs of a window to their rows.
    pub(super) fn put_margins(&self, batch: &mut Batch, window: &Window) -> Result<(), StoreError> {
        for (cell, more) in &window.margins {
            let row = row_of(cell);
            let before: Option<(MarginCell, MarginTotal)> = self.value(&row)?;
            let mut sum = before.map(|(_, sum)| sum).unwrap_or_default();
            sum.add(more);
            put(batch, row, &(cell, sum))?;
        }
        Ok(())
    }

    /// Cost and revenue of calls in these days.
    pub(crate) fn margins(
        &self,
        days: Range<u32>,
    ) -> Result<Vec<(MarginCell, MarginTotal)>, StoreError> {
        let bound = |day: u32| key(MARGIN, &[&day.to_be_bytes()]);
        let rows = self.db.range(bound(days.start)..bound(days.end));
        rows.map(|row| Ok(postcard::from_bytes(&row?.1)?)).collect()
    }
}

/// Neither a model nor an upstream has a zero byte in its name.
fn row_of(cell: &MarginCell) -> Vec<u8> {
    let (day, account) = (cell.day.to_be_bytes(), cell.account.number().to_be_bytes());
    key(MARGIN, &[&day, &account, cell.model.as_bytes(), &[0], cell.upstream.as_bytes()])
}
