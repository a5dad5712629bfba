//! Single records in sled, for a journal that has lost them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ENTRIES, Store, StoreError, read_chunk};
use crate::records::record::Record;
use crate::records::reservation::Reservation;
use tollgate_types::ids::Seq;

impl Store {
    /// The records among `is_missing` that it has whole: ends of holds with what was held, grants, refunds,
    /// payments of debts, write-offs, acts and losses.
    pub(crate) fn records_of(
        &self,
        is_missing: &dyn Fn(Seq) -> bool,
    ) -> Result<BTreeMap<Seq, Record>, StoreError> {
        let mut records = BTreeMap::new();
        for row in self.db.scan_prefix([ENTRIES]) {
            for entry in read_chunk(&row?.1)? {
                if let Some((open, id)) = entry.hold.as_ref().zip(entry.record.open_hold())
                    && is_missing(id.number())
                {
                    // Held in all, without the extensions, which are lost.
                    let reservation =
                        Reservation { amount: open.amount, ..(*open.reservation).clone() };
                    records.insert(id.number(), Record::Reserved(Arc::new(reservation)));
                }
                if is_missing(entry.seq) {
                    records.insert(entry.seq, entry.record);
                }
            }
        }
        self.each_act(|seq, act| {
            if is_missing(seq) {
                records.insert(seq, Record::Acted(Arc::new(act.clone())));
            }
        })?;
        for loss in self.losses(usize::MAX)? {
            if is_missing(loss.seq) {
                records.insert(loss.seq, Record::Lost(loss.lost));
            }
        }
        Ok(records)
    }
}
