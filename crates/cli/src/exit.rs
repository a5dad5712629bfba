//! Exit codes of commands, for scripts.

use std::process::ExitCode;

use super::terminal::errln;
use tollgate_fleet::postgres::DbError;
use tollgate_types::printable::shortened;

/// Other failure, such as a disk error or an unreadable response.
pub const FAILED: u8 = 1;
/// Invalid command line; clap's own code.
pub const USAGE: u8 = 2;
/// The requested object does not exist.
pub const NOT_FOUND: u8 = 3;
/// The gateway refused: an invalid value, a conflict, a wrong token.
pub const REFUSED: u8 = 4;
/// No gateway answers at the admin address.
pub const UNREACHABLE: u8 = 5;
/// Done, except for a part that was skipped.
pub const PARTLY: u8 = 6;

/// Longest message, in characters: a response that is no document of the admin API is quoted.
const MESSAGE_CHARS_MAX: usize = 4_000;

/// Exit codes in `--help`.
pub(super) const CODES: &str = "\
Exit codes: 0 success, 1 failure, 2 usage error, 3 not found, 4 refused, 5 gateway unreachable.";

/// A failure with a specific exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Exit code of the command.
    pub code: u8,
    /// Error message, without a full stop.
    pub message: String,
    /// Advice for the operator, if any.
    pub help: Option<String>,
}

impl Failure {
    /// Failure of a fleet's database: refused or unreachable.
    pub fn of_database(error: &DbError) -> Self {
        let code = match error {
            DbError::Failed(_) => REFUSED,
            DbError::Unavailable(_) | DbError::Unknown(_) => UNREACHABLE,
        };
        Self { code, message: error.to_string(), help: None }
    }
}

/// Print an error on standard error, and return its exit code.
#[must_use]
pub fn report(error: &anyhow::Error) -> ExitCode {
    // A reader that has seen enough, such as `head`, is no failure.
    let kind = |cause: &(dyn std::error::Error + 'static)| {
        // serde_json wraps errors of the writer in its own type.
        let io = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        io.or_else(|| cause.downcast_ref::<serde_json::Error>()?.io_error_kind())
    };
    if error.chain().any(|cause| kind(cause) == Some(std::io::ErrorKind::BrokenPipe)) {
        return ExitCode::SUCCESS;
    }
    say(error);
    ExitCode::from(error.downcast_ref::<Failure>().map_or(FAILED, |failure| failure.code))
}

/// Print an error and its advice on standard error.
pub(super) fn say(error: &anyhow::Error) {
    // What others say may have lines, but none of them looks like one of ours.
    let printed = |text: &str| shortened(text, MESSAGE_CHARS_MAX).replace('\n', "\n  ");
    errln!("error: {}", printed(&format!("{error:#}")));
    let failure = error.downcast_ref::<Failure>();
    if let Some(help) = failure.and_then(|failure| failure.help.as_ref()) {
        errln!("help: {}", printed(help));
    }
}
