//! Rules for names, notes and keys that apply to every caller.
//!
//! The admin API (and the command line, which calls it) and both consoles ask here before they ask the
//! ledger, so that each can say in its own words what is wrong and where. Whoever is narrower than this
//! says why beside its own limit.

use thiserror::Error;

use crate::records::error::LedgerError;

/// The longest name of an account or key, and the longest id that a caller chooses, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// The longest note that an operator writes, in characters.
pub const NOTE_CHARS_MAX: usize = 256;
/// Maximum number of uses of a code.
pub const CODE_USES_MAX: u32 = 100_000;
/// The most models that one key can be limited to: more is a sign that it should not be limited.
pub const KEY_MODELS_MAX: usize = 100;
/// The longest name of one of those models, in bytes, as `models.yaml` has them.
pub const KEY_MODEL_BYTES_MAX: usize = 128;

/// Fault of a name, a chosen id, or a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TextError {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// It is longer than such a text may be.
    #[error("it is too long")]
    TooLong,
    /// It has a control character in it, which could break a line of a log.
    #[error("it has a control character")]
    ControlCharacter,
}

/// Fault of a key's list of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyModelsError {
    /// There are more than [`KEY_MODELS_MAX`].
    #[error("a key can be limited to at most {KEY_MODELS_MAX} models")]
    TooMany,
    /// The name of one is longer than [`KEY_MODEL_BYTES_MAX`] bytes.
    #[error("names of models have at most {KEY_MODEL_BYTES_MAX} bytes")]
    TooLong,
    /// The name of one can be no name at all.
    #[error(transparent)]
    Name(#[from] TextError),
}

/// Checks the name of an account or key, or an id that a caller chooses: 1 to [`NAME_BYTES_MAX`] bytes
/// without control characters.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn check_name(name: &str) -> Result<(), TextError> {
    if name.is_empty() {
        return Err(TextError::Empty);
    }
    check_line(name, name.len() <= NAME_BYTES_MAX)
}

/// Checks a note: at most [`NOTE_CHARS_MAX`] characters without control characters, or nothing.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn check_note(note: &str) -> Result<(), TextError> {
    check_line(note, note.chars().count() <= NOTE_CHARS_MAX)
}

fn check_line(text: &str, fits: bool) -> Result<(), TextError> {
    if !fits {
        return Err(TextError::TooLong);
    }
    if text.chars().any(char::is_control) {
        return Err(TextError::ControlCharacter);
    }
    Ok(())
}

/// Checks the models that a key is limited to; `None` stands for all, and an empty list for none.
///
/// # Errors
/// The first thing that is wrong with them.
pub fn check_key_models(models: Option<&[String]>) -> Result<(), KeyModelsError> {
    let models = models.unwrap_or_default();
    if models.len() > KEY_MODELS_MAX {
        return Err(KeyModelsError::TooMany);
    }
    if models.iter().any(|model| model.len() > KEY_MODEL_BYTES_MAX) {
        return Err(KeyModelsError::TooLong);
    }
    models.iter().try_for_each(|model| Ok(check_name(model)?))
}

impl From<TextError> for LedgerError {
    fn from(_: TextError) -> Self {
        Self::Invalid("names and ids have 1 to 256 bytes and no control characters")
    }
}

impl From<KeyModelsError> for LedgerError {
    fn from(error: KeyModelsError) -> Self {
        match error {
            KeyModelsError::TooMany => Self::Invalid("a key can be limited to at most 100 models"),
            KeyModelsError::TooLong => Self::Invalid("names of models have at most 128 bytes"),
            KeyModelsError::Name(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_in_bytes_and_notes_in_characters() {
        for (text, name, note) in [
            ("", Err(TextError::Empty), Ok(())),
            ("a\nb", Err(TextError::ControlCharacter), Err(TextError::ControlCharacter)),
            (&"é".repeat(128), Ok(()), Ok(())),
            (&"é".repeat(129), Err(TextError::TooLong), Ok(())),
            (&"é".repeat(257), Err(TextError::TooLong), Err(TextError::TooLong)),
        ] {
            assert_eq!((check_name(text), check_note(text)), (name, note), "{text:?}");
        }
    }

    #[test]
    fn models_of_a_key_are_counted_and_named() {
        let models = |count: usize, name: &str| vec![name.to_owned(); count];
        assert_eq!(check_key_models(None), Ok(()), "all models");
        for (models, expected) in [
            (vec![], Ok(())),
            (models(100, "m"), Ok(())),
            (models(101, "m"), Err(KeyModelsError::TooMany)),
            (models(1, &"m".repeat(128)), Ok(())),
            (models(1, &"é".repeat(65)), Err(KeyModelsError::TooLong)),
            (models(1, ""), Err(KeyModelsError::Name(TextError::Empty))),
        ] {
            assert_eq!(check_key_models(Some(&models)), expected, "{models:?}");
        }
    }
}
