//! A request body, and its share of the budget for bodies.

use bytes::Bytes;

use crate::gateway::wire::memory::budget::{BudgetShare, Full};
use crate::protocols::splice::EditedBody;

/// Bytes for each JSON value that reading takes: a copy of its text without escapes, and a reference to a
/// stored object with its id's position.
const READ_BYTES_PER_VALUE: usize = 64;

/// A body and its share of the budget, given back on drop.
pub(crate) struct HeldBody {
    pub(crate) bytes: Bytes,
    pub(crate) share: BudgetShare,
}

impl HeldBody {
    /// Reserves memory for parsing a body with at most `values_max` values; freed on drop.
    ///
    /// # Errors
    /// Which budget does not have it.
    pub(crate) fn room_to_read(&self, values_max: usize, max: usize) -> Result<BudgetShare, Full> {
        let length = self.bytes.len();
        // The shortest value is one byte and the comma behind it.
        let values = values_max.min(length / 2);
        self.room(values.saturating_mul(READ_BYTES_PER_VALUE).saturating_add(length), max)
    }

    /// Reserves memory for more bytes. A single large body can use all but an eighth, which remains for
    /// others: most bodies are short.
    ///
    /// # Errors
    /// Which budget does not have them.
    pub(crate) fn room(&self, bytes: usize, max: usize) -> Result<BudgetShare, Full> {
        let of_account =
            self.share.account_bytes_max().map_or(max, |of_account| of_account.min(max));
        let mut room = self.share.empty();
        let bytes = bytes.min((of_account - of_account / 8).saturating_sub(self.share.bytes()));
        room.try_grow(bytes, max)?;
        Ok(room)
    }

    /// Counts what goes upstream as well, as far as it is a copy.
    ///
    /// # Errors
    /// Which budget does not have that.
    pub(crate) fn share_with(&mut self, sent: &EditedBody, max: usize) -> Result<(), Full> {
        self.share.try_resize(self.bytes.len() + sent.copied_bytes(&self.bytes), max)
    }

    /// Counts bytes of an answer as well; false if the budget does not have them.
    pub(crate) fn grow(&mut self, bytes: usize, max: usize) -> bool {
        self.share.grow(bytes, max)
    }

    /// Drops the body, and keeps an empty share of the budget.
    pub(crate) fn into_share(mut self) -> BudgetShare {
        self.share.release();
        self.share
    }
}
