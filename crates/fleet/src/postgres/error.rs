//! Errors of the database, and the state of the work after each.

use std::error::Error as _;
use std::fmt;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError as ServerError, Severity, SqlState};
use tollgate_ledger::{AccountId, HoldId, NodeId};
use tollgate_money::money::Nanousd;

/// The reason for an operation without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DbError {
    /// It was not applied: the database is down, busy or read-only. It can be repeated.
    Unavailable(String),
    /// COMMIT was not answered: it may have been applied. A repetition must use the same ids.
    Unknown(String),
    /// It was not applied and a repetition will fail too: a rule of the schema, a bug, or the wrong database.
    Failed(String),
}

impl DbError {
    /// The cause, and the action to take.
    #[must_use]
    pub fn message(&self) -> &str {
        let (Self::Unavailable(message) | Self::Unknown(message) | Self::Failed(message)) = self;
        message
    }

    /// Adds the place of the error.
    pub(super) fn named(self, place: &str) -> Self {
        let named = |message: String| format!("PostgreSQL at {place}: {message}");
        match self {
            Self::Unavailable(message) => Self::Unavailable(named(message)),
            Self::Unknown(message) => Self::Unknown(named(message)),
            Self::Failed(message) => Self::Failed(named(message)),
        }
    }
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(message) => write!(f, "it is not known whether it was done: {message}"),
            Self::Unavailable(message) | Self::Failed(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for DbError {}

/// Reason why the treasury refuses a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRefused {
    /// The account does not exist there.
    UnknownAccount(AccountId),
    /// The same id was granted before.
    GivenBefore,
    /// The amount does not fit the account.
    DoesNotFit,
    /// The account has spent less.
    NotSpent,
    /// The account owes less.
    NotOwed,
    /// The credit line is negative, or does not fit the account.
    UnfitCredit,
    /// Nodes have leased this much of the account's credit line, which cannot be set to less.
    CreditInFlight(AccountId, Nanousd),
    /// The hold is not in doubt.
    NotInDoubt(HoldId),
    /// No lease of the node is in suspense for the account, or another amount is.
    NotInSuspense(NodeId, AccountId),
}

impl From<Error> for DbError {
    fn from(error: Error) -> Self {
        classify(&error)
    }
}

/// True if the server answered with this error, so that the connection remains usable.
pub(super) fn is_an_answer(error: &Error) -> bool {
    error.as_db_error().is_some_and(|answer| !ends_the_connection(answer))
}

fn ends_the_connection(answer: &ServerError) -> bool {
    !matches!(answer.parsed_severity(), Some(Severity::Error))
}

/// True if the same transaction may succeed when repeated: it conflicted with others.
pub(super) fn is_a_conflict(error: &Error) -> bool {
    // CR000 is what older versions of CockroachDB restart transactions with.
    error.code().is_some_and(|code| {
        *code == SqlState::T_R_SERIALIZATION_FAILURE
            || *code == SqlState::T_R_DEADLOCK_DETECTED
            || code.code() == "CR000"
    })
}

/// Classifies an error of any statement but COMMIT, which was not applied.
pub(super) fn classify(error: &Error) -> DbError {
    if let Some(answer) = error.as_db_error() {
        return classify_answer(answer);
    }
    let message = chain(error);
    if let Some(refused) = tls_refusal(error) {
        return DbError::Failed(format!(
            "TLS failed: {refused}; see store.postgres.tls, ca_file and the host's name in url"
        ));
    }
    if message.contains("does not support TLS") {
        return DbError::Failed(
            "the server offers no TLS: switch it on there (ssl = on), or set store.postgres.tls to \
             disable where the network is trusted"
                .to_owned(),
        );
    }
    if message.contains("password missing") {
        return DbError::Failed("it asks for a password: set store.postgres.password".to_owned());
    }
    if message.contains("does not allow writes") {
        return DbError::Unavailable(READ_ONLY.to_owned());
    }
    if error.is_closed() || error.source().is_some_and(|cause| cause.is::<std::io::Error>()) {
        return DbError::Unavailable(message);
    }
    DbError::Failed(message)
}

/// Classifies an error of COMMIT.
pub(super) fn classify_commit(error: &Error) -> DbError {
    match error.as_db_error() {
        // The server has ended the transaction with an error: nothing of it stays. The last words of a
        // connection that ends can come behind a COMMIT that was done, and 40003 says just that.
        Some(answer)
            if !ends_the_connection(answer)
                && *answer.code() != SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN =>
        {
            classify_answer(answer)
        }
        _ => DbError::Unknown(chain(error)),
    }
}

const READ_ONLY: &str = "the database takes no writes: it is a standby, or \
                         default_transaction_read_only is on; store.postgres.url must lead to the \
                         primary";

fn classify_answer(answer: &ServerError) -> DbError {
    let code = answer.code().code();
    let text = format!("{} (SQLSTATE {code})", answer.message());
    match code {
        "25006" => DbError::Unavailable(format!("{READ_ONLY}: {text}")),
        "53300" => DbError::Unavailable(format!(
            "the database takes no more connections: raise max_connections there, or lower \
             store.postgres.connections: {text}"
        )),
        "57P01" | "57P02" | "57P03" => {
            DbError::Unavailable(format!("the database is starting or stopping: {text}"))
        }
        // Said of a database that its administrator has closed.
        "55000" => DbError::Unavailable(format!("the database takes no connections now: {text}")),
        "57014" => DbError::Unavailable(format!("a statement took too long: {text}")),
        "28P01" => DbError::Failed(format!(
            "the user or the password is wrong; see store.postgres.url and password: {text}"
        )),
        "28000" => DbError::Failed(format!(
            "the server does not let this user in from here; see pg_hba.conf there, and \
             store.postgres.url and tls: {text}"
        )),
        "3D000" => DbError::Failed(format!(
            "there is no such database: make it with createdb, or correct store.postgres.url: {text}"
        )),
        "42501" => DbError::Failed(format!(
            "the user lacks a right there: it must own the schema tollgate, or the database: {text}"
        )),
        "42P01" | "42703" | "3F000" => DbError::Failed(format!(
            "the schema is not the one of this version; see `tollgate migrate status`: {text}"
        )),
        _ => match &code[..2] {
            // No connection, no resources, ended by an operator, damaged or full disks; conflicts that
            // were tried often enough; a transaction that the server has ended for its silence; a lock.
            "08" | "53" | "57" | "58" | "40" => DbError::Unavailable(text),
            _ if matches!(code, "25P03" | "55P03" | "CR000") => DbError::Unavailable(text),
            _ => DbError::Failed(text),
        },
    }
}

/// Finds the TLS library's reason for rejecting a server.
fn tls_refusal(error: &Error) -> Option<&rustls::Error> {
    let io = error.source()?.downcast_ref::<std::io::Error>()?;
    io.get_ref()?.downcast_ref()
}

/// An error with its causes.
fn chain(error: &Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        message = format!("{message}: {next}");
        cause = next.source();
    }
    message
}
