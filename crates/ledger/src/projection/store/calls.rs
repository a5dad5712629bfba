//! Finding the end of one call among an account's entries.
//!
//! Entries stand in the order in which they happened, so the place is found by halving, and only
//! what follows it is read.

use super::{Store, StoreError, entries_key, read_chunk};
use crate::records::hold_end::VoidReason;
use crate::records::record::{JournaledRecord, Record};
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, RequestId, Seq};

/// The most chunks that are read for one call, each of up to 16 KiB: where few calls are made, those
/// of hours.
const CHUNKS_MAX: usize = 512;
/// The most bytes of them: some 13,000 entries, which take some 10 ms.
const BYTES_MAX: usize = 2 << 20;
/// Margins before the given time at which the search for the end begins: a small one that assumes an
/// undisturbed clock, for accounts with very many calls, and a large one in case the clock was set back.
const SLACKS_MS: [u64; 2] = [100, 5_000];
/// Steps of halving: as many as a [`Seq`] has bits.
const STEPS_MAX: usize = 64;

/// Name of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallName {
    /// The request, and a moment before which its hold had not ended.
    Request(RequestId, UnixMs),
    /// The hold that pays for it, and such a moment where one is known that is later than the hold.
    Hold(HoldId, Option<UnixMs>),
}

impl CallName {
    /// True if `journaled` ends the hold of this call.
    pub fn is_ended_by(self, journaled: &JournaledRecord) -> bool {
        let is_match = match self {
            Self::Hold(id, _) => journaled.record.open_hold() == Some(id),
            Self::Request(id, _) => {
                journaled.hold.as_ref().is_some_and(|hold| hold.reservation.request == id)
            }
        };
        // A request goes on with another hold when another model is asked.
        let goes_on = matches!(self, Self::Request(..))
            && matches!(journaled.record, Record::Voided { reason: VoidReason::Replaced, .. });
        is_match && journaled.record.ends_hold() && !goes_on
    }
}

impl Store {
    /// The entry with which a call of an account ended. `None` if there is none, or if very many
    /// entries stand between it and where it may have been at the earliest.
    pub(crate) fn end_of_call(
        &self,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<JournaledRecord>, StoreError> {
        let from = match name {
            CallName::Hold(_, from) => from,
            CallName::Request(_, from) => Some(from),
        };
        let made_at = match name {
            CallName::Hold(id, _) => self.chunk_before(account, id.number())?,
            CallName::Request(..) => 0,
        };
        let Some(from) = from else { return self.end_behind(account, made_at, name) };
        for slack in SLACKS_MS {
            let begin = self.chunk_at(account, UnixMs(from.0.saturating_sub(slack)))?;
            let found = self.end_behind(account, begin.max(made_at), name)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The same among the entries from `begin` on.
    fn end_behind(
        &self,
        account: AccountId,
        begin: Seq,
        name: CallName,
    ) -> Result<Option<JournaledRecord>, StoreError> {
        let mut bytes = 0_usize;
        let end = entries_key(account, Seq::MAX);
        for row in self.db.range(entries_key(account, begin)..end).take(CHUNKS_MAX) {
            let (_, chunk) = row?;
            let found = read_chunk(&chunk)?.into_iter().find(|entry| name.is_ended_by(entry));
            bytes = bytes.saturating_add(chunk.len());
            if found.is_some() || bytes > BYTES_MAX {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The entry of an account at this place.
    pub(crate) fn entry(
        &self,
        account: AccountId,
        seq: Seq,
    ) -> Result<Option<JournaledRecord>, StoreError> {
        let begin = self.chunk_before(account, seq)?;
        let Some(chunk) = self.db.get(entries_key(account, begin))? else { return Ok(None) };
        Ok(read_chunk(&chunk)?.into_iter().find(|entry| entry.seq == seq))
    }

    /// Start of the last chunk at or before `seq`.
    fn chunk_before(&self, account: AccountId, seq: Seq) -> Result<Seq, StoreError> {
        let found = self.db.range(entries_key(account, 0)..=entries_key(account, seq)).next_back();
        Ok(found.transpose()?.map_or(0, |(key, _)| seq_of(&key)))
    }

    /// Start of the last chunk whose first entry is older than `from`.
    fn chunk_at(&self, account: AccountId, from: UnixMs) -> Result<Seq, StoreError> {
        let (mut low, mut high) = (0, self.chunk_before(account, Seq::MAX)?);
        for _ in 0..STEPS_MAX {
            if low >= high {
                break;
            }
            let middle = low + (high - low).div_ceil(2);
            let chunk = self.chunk_before(account, middle)?;
            if chunk == 0 || self.begins_before(account, chunk, from)? {
                low = middle;
            } else {
                // All places from the chunk to the middle are in it.
                high = chunk - 1;
            }
        }
        self.chunk_before(account, low)
    }

    fn begins_before(
        &self,
        account: AccountId,
        chunk: Seq,
        from: UnixMs,
    ) -> Result<bool, StoreError> {
        let Some(bytes) = self.db.get(entries_key(account, chunk))? else { return Ok(false) };
        let (first, _): (JournaledRecord, _) = postcard::take_from_bytes(&bytes)?;
        Ok(first.record.at() < from)
    }
}

/// The place in the key of a chunk.
fn seq_of(key: &[u8]) -> Seq {
    key.last_chunk().map_or(0, |bytes| Seq::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::journal::segment::Position;
    use crate::projection::window::Window;
    use crate::records::hold_end::VoidReason;
    use crate::records::record::Record;
    use crate::records::reservation::{OpenHold, Reservation};
    use tollgate_money::money::Nanousd;
    use tollgate_types::ids::KeyId;

    const MINUTE_MS: u64 = 60_000;

    /// A store in which one account has made `calls` calls, one a minute, each in a chunk of its own.
    fn store(directory: &std::path::Path, account: AccountId, calls: u64) -> Store {
        let store = Store::open(directory).expect("a store");
        let name = "test".to_owned();
        let created = Record::AccountCreated { account, name, at: UnixMs(0) };
        let granted =
            Record::Granted { account, id: "g".into(), amount: Nanousd::new(1), at: UnixMs(0) };
        let mut window = Window::default();
        for (seq, record) in [(1, created), (2, granted)] {
            window.add(JournaledRecord { seq, record, hold: None }).expect("allowed");
        }
        store.apply(window, Position::default()).expect("applied");
        for call in 0..calls {
            let at = UnixMs(call * MINUTE_MS);
            let reservation = Arc::new(Reservation {
                account,
                key: KeyId::from_number(1),
                model: "m".into(),
                price: None,
                request: RequestId::from_number(call.into()),
                amount: Nanousd::ZERO,
                floor: Nanousd::ZERO,
                at,
            });
            let seq = 3 + 2 * call;
            let hold = HoldId::from_number(seq);
            let voided = Record::Voided { account, hold, reason: VoidReason::Unreached, at };
            let open = OpenHold { reservation: Arc::clone(&reservation), amount: Nanousd::ZERO };
            let mut window = Window::default();
            for journaled in [
                JournaledRecord { seq, record: Record::Reserved(reservation), hold: None },
                JournaledRecord { seq: seq + 1, record: voided, hold: Some(open) },
            ] {
                window.add(journaled).expect("allowed");
            }
            store.apply(window, Position::default()).expect("applied");
        }
        store
    }

    #[test]
    fn a_call_is_found_by_when_it_ended() {
        let directory = tempfile::tempdir().expect("a directory");
        let account = AccountId::from_number(9);
        let calls = CHUNKS_MAX as u64 * 2;
        let store = store(&directory.path().join("sled"), account, calls);
        let find = |name| store.end_of_call(account, name).expect("read").map(|found| found.seq);
        for call in (0..calls).step_by(7) {
            let request = RequestId::from_number(call.into());
            let place = Some(4 + 2 * call);
            let by_time = |ms: u64| find(CallName::Request(request, UnixMs(ms)));
            assert_eq!(by_time(call * MINUTE_MS), place, "call {call}");
            assert_eq!(by_time((call * MINUTE_MS).saturating_sub(MINUTE_MS)), place, "{call}");
            assert_eq!(by_time(call * MINUTE_MS + 2 * MINUTE_MS), None, "it had ended: {call}");
            let hold = HoldId::from_number(3 + 2 * call);
            for from in [None, Some(UnixMs(call * MINUTE_MS)), Some(UnixMs(0))] {
                assert_eq!(find(CallName::Hold(hold, from)), place, "call {call} from {from:?}");
            }
        }
        let last = RequestId::from_number((calls - 1).into());
        assert_eq!(find(CallName::Request(last, UnixMs(0))), None, "the search has a bound");
        assert_eq!(find(CallName::Hold(HoldId::from_number(4), None)), None, "no hold is there");
        let stranger = AccountId::from_number(8);
        let name = CallName::Request(last, UnixMs((calls - 1) * MINUTE_MS));
        assert!(find(name).is_some() && store.end_of_call(stranger, name).expect("read").is_none());
    }
}
