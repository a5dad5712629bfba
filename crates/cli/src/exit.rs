//! With what commands exit, for scripts.

use std::process::ExitCode;

use super::terminal::errln;
use tollgate_fleet::postgres::DbError;
use tollgate_types::printable::shortened;

/// It failed for another reason, such as a disk or an answer that cannot be read.
pub const FAILED: u8 = 1;
/// The command is not complete, or its parts do not fit together; clap's own code.
pub const USAGE: u8 = 2;
/// What was asked for does not exist.
pub const NOT_FOUND: u8 = 3;
/// The gateway refused: a value that will not do, a conflict, a wrong token.
pub const REFUSED: u8 = 4;
/// No gateway answers at the address of the admin API.
pub const UNREACHABLE: u8 = 5;
/// It was done, but something had to be left out.
pub const PARTLY: u8 = 6;

/// The longest message, in characters: an answer that is no document of the admin API is repeated.
const MESSAGE_CHARS_MAX: usize = 4_000;

/// What `--help` says of exit codes.
pub(super) const CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 refused, 5 no gateway answers.";

/// A failure that a script may tell from others.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// With what the command exits.
    pub code: u8,
    /// What went wrong, in a sentence without a full stop.
    pub message: String,
    /// What the operator can do about it, if there is something.
    pub help: Option<String>,
}

impl Failure {
    /// What the database of a fleet said: it refuses, or it is not to be had.
    pub fn of_database(error: &DbError) -> Self {
        let code = match error {
            DbError::Failed(_) => REFUSED,
            DbError::Unavailable(_) | DbError::Unknown(_) => UNREACHABLE,
        };
        Self { code, message: error.to_string(), help: None }
    }
}

/// Says on standard error what stopped a command, and gives its exit code.
#[must_use]
pub fn report(error: &anyhow::Error) -> ExitCode {
    // A reader that has seen enough, such as `head`, is no failure.
    let kind = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        io.or_else(|| cause.downcast_ref::<serde_json::Error>()?.io_error_kind())
    };
    if error.chain().any(|cause| kind(cause) == Some(std::io::ErrorKind::BrokenPipe)) {
        return ExitCode::SUCCESS;
    }
    say(error);
    ExitCode::from(error.downcast_ref::<Failure>().map_or(FAILED, |failure| failure.code))
}

/// Says on standard error what went wrong, and what to do.
pub(super) fn say(error: &anyhow::Error) {
    // What others say may have lines, but none of them looks like one of ours.
    let printed = |text: &str| shortened(text, MESSAGE_CHARS_MAX).replace('\n', "\n  ");
    errln!("error: {}", printed(&format!("{error:#}")));
    let failure = error.downcast_ref::<Failure>();
    if let Some(help) = failure.and_then(|failure| failure.help.as_ref()) {
        errln!("help: {}", printed(help));
    }
}
