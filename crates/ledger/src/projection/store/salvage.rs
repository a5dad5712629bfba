//! What sled knows of single records, for a journal that has lost them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ENTRIES, Store, StoreError, read_chunk};
use crate::records::record::{Record, Reservation};
use tollgate_types::ids::Seq;

impl Store {
    /// The records among `wanted` that it has whole: ends of holds with what was held, grants, refunds,
    /// payments of debts, write-offs, acts and losses.
    pub(crate) fn known_records(
        &self,
        wanted: &dyn Fn(Seq) -> bool,
    ) -> Result<BTreeMap<Seq, Record>, StoreError> {
        let mut known = BTreeMap::new();
        for row in self.db.scan_prefix([ENTRIES]) {
            for entry in read_chunk(&row?.1)? {
                if let Some((open, id)) = entry.hold.as_ref().zip(entry.record.open_hold())
                    && wanted(id.number())
                {
                    // Held in all, without the extensions, which are lost.
                    let reservation =
                        Reservation { amount: open.amount, ..(*open.reservation).clone() };
                    known.insert(id.number(), Record::Reserved(Arc::new(reservation)));
                }
                if wanted(entry.seq) {
                    known.insert(entry.seq, entry.record);
                }
            }
        }
        self.each_act(|seq, act| {
            if wanted(seq) {
                known.insert(seq, Record::Acted(Arc::new(act.clone())));
            }
        })?;
        for loss in self.losses(usize::MAX)? {
            if wanted(loss.seq) {
                known.insert(loss.seq, Record::Lost(loss.lost));
            }
        }
        Ok(known)
    }
}
