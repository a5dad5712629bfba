//! What went wrong with the database, and what that says of the work.

use std::error::Error as _;
use std::fmt;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError as ServerError, Severity, SqlState};
use tollgate_ledger::{AccountId, HoldId, NodeId};
use tollgate_money::money::Nanousd;

/// Why something that was asked of the database has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DbError {
    /// It was not done: the database is away, busy or read-only. It can be asked again.
    Unavailable(String),
    /// Its end was asked for and no answer came: it may have been done. Whoever asks again does so with
    /// the same ids.
    Unknown(String),
    /// It was not done and will not be, however often it is asked: a rule of the schema, a mistake, or
    /// the wrong database.
    Failed(String),
}

impl DbError {
    /// What happened, and what to do.
    #[must_use]
    pub fn message(&self) -> &str {
        let (Self::Unavailable(message) | Self::Unknown(message) | Self::Failed(message)) = self;
        message
    }

    /// Says where it happened.
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

/// For columns that are read in a wrong type: a mistake.
/// Why the treasury does not take a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRefused {
    /// There is no such account there.
    UnknownAccount(AccountId),
    /// It was given before under the same id.
    GivenBefore,
    /// The amount does not fit the account.
    DoesNotFit,
    /// The account has not spent so much.
    NotSpent,
    /// The account does not owe so much.
    NotOwed,
    /// The credit line is negative, or does not fit the account.
    UnfitCredit,
    /// Nodes have this much of the account's credit line out: it cannot be set to less.
    CreditInFlight(AccountId, Nanousd),
    /// Nobody is in doubt about the hold.
    NotInDoubt(HoldId),
    /// Nothing that the node has out of the account is in suspense, or another amount.
    NotInSuspense(NodeId, AccountId),
}

impl From<Error> for DbError {
    fn from(error: Error) -> Self {
        classify(&error)
    }
}

/// Whether the server answered with this error, so that the connection is as good as before.
pub(super) fn is_an_answer(error: &Error) -> bool {
    error.as_db_error().is_some_and(|answer| !ends_the_connection(answer))
}

fn ends_the_connection(answer: &ServerError) -> bool {
    !matches!(answer.parsed_severity(), Some(Severity::Error))
}

/// Whether the same transaction may succeed when it is begun again: others were in its way.
pub(super) fn is_a_conflict(error: &Error) -> bool {
    // CR000 is what older versions of CockroachDB restart transactions with.
    error.code().is_some_and(|code| {
        *code == SqlState::T_R_SERIALIZATION_FAILURE
            || *code == SqlState::T_R_DEADLOCK_DETECTED
            || code.code() == "CR000"
    })
}

/// What an error of anything but COMMIT says: that was not done.
pub(super) fn classify(error: &Error) -> DbError {
    if let Some(answer) = error.as_db_error() {
        return classify_answer(answer);
    }
    let told = chain(error);
    if let Some(refused) = tls_refusal(error) {
        return DbError::Failed(format!(
            "TLS failed: {refused}; see store.postgres.tls, ca_file and the host's name in url"
        ));
    }
    if told.contains("does not support TLS") {
        return DbError::Failed(
            "the server offers no TLS: switch it on there (ssl = on), or set store.postgres.tls to \
             disable where the network is trusted"
                .to_owned(),
        );
    }
    if told.contains("password missing") {
        return DbError::Failed("it asks for a password: set store.postgres.password".to_owned());
    }
    if told.contains("does not allow writes") {
        return DbError::Unavailable(READ_ONLY.to_owned());
    }
    if error.is_closed() || error.source().is_some_and(|cause| cause.is::<std::io::Error>()) {
        return DbError::Unavailable(told);
    }
    DbError::Failed(told)
}

/// What an error of COMMIT says.
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
    let said = format!("{} (SQLSTATE {code})", answer.message());
    match code {
        "25006" => DbError::Unavailable(format!("{READ_ONLY}: {said}")),
        "53300" => DbError::Unavailable(format!(
            "the database takes no more connections: raise max_connections there, or lower \
             store.postgres.connections: {said}"
        )),
        "57P01" | "57P02" | "57P03" => {
            DbError::Unavailable(format!("the database is starting or stopping: {said}"))
        }
        // Said of a database that its administrator has closed.
        "55000" => DbError::Unavailable(format!("the database takes no connections now: {said}")),
        "57014" => DbError::Unavailable(format!("a statement took too long: {said}")),
        "28P01" => DbError::Failed(format!(
            "the user or the password is wrong; see store.postgres.url and password: {said}"
        )),
        "28000" => DbError::Failed(format!(
            "the server does not let this user in from here; see pg_hba.conf there, and \
             store.postgres.url and tls: {said}"
        )),
        "3D000" => DbError::Failed(format!(
            "there is no such database: make it with createdb, or correct store.postgres.url: {said}"
        )),
        "42501" => DbError::Failed(format!(
            "the user lacks a right there: it must own the schema tollgate, or the database: {said}"
        )),
        "42P01" | "42703" | "3F000" => DbError::Failed(format!(
            "the schema is not the one of this version; see `tollgate migrate status`: {said}"
        )),
        _ => match &code[..2] {
            // No connection, no resources, ended by an operator, damaged or full disks; conflicts that
            // were tried often enough; a transaction that the server has ended for its silence; a lock.
            "08" | "53" | "57" | "58" | "40" => DbError::Unavailable(said),
            _ if matches!(code, "25P03" | "55P03" | "CR000") => DbError::Unavailable(said),
            _ => DbError::Failed(said),
        },
    }
}

/// What the TLS library refused a server for.
fn tls_refusal(error: &Error) -> Option<&rustls::Error> {
    let io = error.source()?.downcast_ref::<std::io::Error>()?;
    io.get_ref()?.downcast_ref()
}

/// An error with its causes.
fn chain(error: &Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        told = format!("{told}: {next}");
        cause = next.source();
    }
    told
}
