//! An object of a content while it is read.

use super::allowlist::{MediaShape, ObjectTable};
use tollgate_types::error::GatewayError;

/// An object as read.
#[derive(Default)]
pub(super) struct Item<'a> {
    /// Its type, as it is written.
    pub(super) kind: &'a [u8],
    /// Keys of the table that are present, as bits.
    pub(super) seen: u64,
    /// A key is there that is not known, or is there twice.
    pub(super) is_odd: bool,
    /// Refusal of something further inside.
    pub(super) inner_refusal: Option<Box<GatewayError>>,
    /// The medium that it holds or refers to, as it is written.
    pub(super) medium: Option<(MediaShape, &'a [u8])>,
    /// The level of detail at which the model reads that.
    pub(super) detail: Option<&'a [u8]>,
    /// Its text is cut into pieces that the model can cite.
    pub(super) is_cited: bool,
}

impl<'a> Item<'a> {
    /// Of two media nobody knows which one is read.
    pub(super) fn add_medium(&mut self, shape: MediaShape, written: &'a [u8]) {
        self.is_odd |= self.medium.replace((shape, written)).is_some();
    }

    /// Google's level has two names, and of two levels either may count.
    pub(super) fn add_detail(&mut self, written: Option<&'a [u8]>) {
        self.is_odd |= written.is_some() && self.detail.is_some();
        self.detail = written.or(self.detail);
    }

    pub(super) fn has_all(&self, table: &ObjectTable, needs: &[&str]) -> bool {
        needs.iter().all(|need| {
            let index = table.keys.iter().position(|(key, _)| key == need);
            index.is_some_and(|index| self.seen & 1 << (index & 63) != 0)
        })
    }
}
