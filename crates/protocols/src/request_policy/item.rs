//! An object of a content while it is read.

use super::allowlist::{MediaShape, ObjectTable};
use crate::json_cursor::WrittenValue;
use tollgate_types::error::GatewayError;

/// An object as read.
#[derive(Default)]
pub(super) struct Item<'a> {
    /// Type of the object, as written.
    pub(super) kind: &'a [u8],
    /// Keys of the table that are present, as bits.
    pub(super) seen: u64,
    /// The object has an unknown or repeated key.
    pub(super) is_odd: bool,
    /// Refusal of a nested value.
    pub(super) inner_refusal: Option<Box<GatewayError>>,
    /// Medium that the object contains or refers to, as written.
    pub(super) medium: Option<(MediaShape, WrittenValue<'a>)>,
    /// The level of detail at which the model reads that.
    pub(super) detail: Option<&'a [u8]>,
    /// Its text is cut into pieces that the model can cite.
    pub(super) is_cited: bool,
}

impl<'a> Item<'a> {
    /// Adds a medium; with two, it is unknown which one is read.
    pub(super) fn add_medium(&mut self, shape: MediaShape, written: WrittenValue<'a>) {
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
