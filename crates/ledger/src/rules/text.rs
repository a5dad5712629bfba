//! Rules for recorded texts: names, ids, and operators' notes.

use crate::records::error::LedgerError;
use crate::rules::key_rules::{self, check_name};

/// Refuses an invalid name, with the message of the admin API.
pub(crate) fn check_text(text: &str) -> Result<(), LedgerError> {
    Ok(check_name(text)?)
}

/// Refuses an invalid note, with the message of the admin API.
pub(crate) fn check_note(note: &str) -> Result<(), LedgerError> {
    key_rules::check_note(note).map_err(|_| {
        LedgerError::Invalid("a note has at most 256 characters and no control characters")
    })
}

/// The id of a thing that an act is about. The act was written with it.
pub(crate) fn parsed<T: std::str::FromStr>(subject: &str) -> Result<T, LedgerError> {
    subject.parse().map_err(|_| LedgerError::OtherRequest)
}
