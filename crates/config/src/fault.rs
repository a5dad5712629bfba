//! Faults of values in a file, before they have a place in its text.

use super::diagnostic::Severity;
use super::spans::DocumentPath;

/// A finding about a value of a document.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// The path of the value at fault.
    pub(super) path: DocumentPath,
    /// True to mark the key instead of the value.
    pub(super) on_key: bool,
    pub(super) severity: Severity,
    /// Message: one sentence without a full stop.
    pub(super) message: String,
    pub(super) help: Option<String>,
}

impl Fault {
    /// An error in a value.
    pub(super) fn at_value(path: &DocumentPath, message: impl Into<String>) -> Self {
        Self {
            path: path.clone(),
            on_key: false,
            severity: Severity::Error,
            message: message.into(),
            help: None,
        }
    }

    /// An error in a key, or in what is missing below it.
    pub(super) fn at_key(path: &DocumentPath, message: impl Into<String>) -> Self {
        Self { on_key: true, ..Self::at_value(path, message) }
    }

    /// Reduces the severity to a warning.
    pub(super) fn warning(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }

    /// Reduces the severity to a note.
    pub(super) fn note(self) -> Self {
        Self { severity: Severity::Note, ..self }
    }

    /// Adds what to do.
    pub(super) fn help(self, help: impl Into<String>) -> Self {
        self.maybe_help(Some(help.into()))
    }

    /// Adds advice, if there is any.
    pub(super) fn maybe_help(self, help: Option<String>) -> Self {
        Self { help, ..self }
    }
}
