//! The database of a fleet: connections, transactions, notifications and the schema.
//!
//! A caller hears one of three things of what failed: it was not done, it may have been done, or it
//! cannot be done ([`DbError`]). What it should do with the money follows from that alone.

mod columns;
mod credit;
mod debts;
pub mod directory;
mod error;
pub(crate) mod sync;
mod history;
pub(crate) mod limits;
mod pooled;
mod listen;
pub mod migrate;
pub(crate) mod recall;
mod secrets;
mod reads;
pub mod tasks;
mod overview;
mod statement_line;
mod suspense;
pub(crate) mod moving;
mod tls;
mod transaction;
mod usage;

use std::fmt;
use std::future::Future;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio::sync::Semaphore;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{Config, NoTls, Row};

pub use self::error::DbError;
pub use self::listen::ChannelNotification;
pub use self::overview::{
    FleetOverview, FleetSums, LeaseFilter, LeaseOut, NodeOverview, NodeState,
};
use self::pooled::PooledConnection;
pub use self::transaction::Transaction;
use tollgate_options::database_url as url;
pub use tollgate_options::database_url::{Host, UrlError, hosts_of};
pub use tollgate_options::postgres::{PostgresOptions, TlsMode, authorities_of};

/// A value of a statement, in the place of its `$1`, `$2` and so on.
pub type Param<'a> = &'a (dyn tokio_postgres::types::ToSql + Sync);

/// Timeout for connecting to one address; a reachable machine needs one round trip.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for opening a connection, including unreachable addresses, TLS and authentication: enough for two
/// addresses.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// The wait for a connection of the pool: shorter than the operations that use it, so that the caller learns
/// the reason.
const WAIT_TIMEOUT: Duration = Duration::from_secs(4);
/// The server ends a statement that takes longer: half of the shortest term that is usual.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(4);
/// The client's timeout of a transaction or query: later than the server's, which states a reason.
const WORK_TIMEOUT: Duration = Duration::from_secs(5);
/// The server's timeout of an idle transaction: others wait for the rows that a stopped node has locked.
/// Shorter than a term of 2 s without the 500 ms between syncs; longer than a node on a busy machine takes
/// between two statements.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time without an acknowledgement after which the kernel closes a connection.
const USER_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval of TCP keep-alive probes on an idle connection.
const KEEPALIVE: Duration = Duration::from_secs(1);
/// Number of unanswered keep-alive probes after which a connection is closed.
const KEEPALIVE_RETRIES: u32 = 3;
/// A migration may rewrite a large table, and waits for one that another process runs.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(600);

/// The longest silence in a transaction of a move, which compares all accounts between two statements; no
/// node waits for it.
const MIGRATION_SILENCE_TIMEOUT: Duration = Duration::from_secs(120);

/// The outcome of a database operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundTripOutcome {
    /// The operation was performed.
    Done,
    /// A serialization conflict; the operation is retried.
    Retried,
    /// The operation was not performed.
    Unavailable,
    /// The operation may have been performed.
    Unknown,
    /// The operation failed permanently.
    Failed,
}

/// The kind of a database operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DbOperation {
    /// A transaction, once per try.
    Transaction,
    /// A query outside a transaction.
    Query,
    /// A complete sync of a node with the treasury. Its transactions are also counted separately.
    Sync,
}

/// A database operation, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    /// The kind of the operation.
    pub operation: DbOperation,
    /// The outcome.
    pub outcome: RoundTripOutcome,
    /// The duration, including the wait for a connection.
    pub took: Duration,
}

/// A callback for each database operation.
pub type DatabaseObserver = Box<dyn Fn(RoundTrip) + Send + Sync>;

/// Timeouts of operations.
#[derive(Clone, Copy, Debug)]
struct DatabaseTimeouts {
    statement: Duration,
    work: Duration,
    silence: Duration,
}

impl DatabaseTimeouts {
    /// The times that hold for a node.
    const USUAL: Self =
        Self { statement: STATEMENT_TIMEOUT, work: WORK_TIMEOUT, silence: SILENCE_TIMEOUT };
}

/// The database. Cheap to clone.
#[derive(Clone)]
pub struct Db {
    shared: Arc<DatabaseState>,
    /// True if it may use the connections reserved for the node itself.
    is_ahead: bool,
}

struct DatabaseState {
    pool: Pool,
    /// Bounds the operations of customers and operators: however slow and many they are, calls get their
    /// money in time and a revoked key is refused.
    places: Arc<Semaphore>,
    config: Config,
    tls: Option<tokio_postgres_rustls::MakeRustlsConnect>,
    limits: DatabaseTimeouts,
    /// The address of the database, for messages.
    place: String,
    observer: Option<DatabaseObserver>,
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Db({})", self.shared.place)
    }
}

impl Db {
    /// Proves that the database is there, can be written to, and has the schema of this version.
    ///
    /// # Errors
    /// What to do about it, in words for the operator. Within [`OPEN_TIMEOUT`] per step.
    pub async fn connect(
        options: &PostgresOptions,
        observer: Option<DatabaseObserver>,
    ) -> Result<Self, DbError> {
        let limits = DatabaseTimeouts::USUAL;
        let db = Self::open(options, observer, limits).await?;
        migrate::check(&db).await?;
        db.check_durability().await?;
        Ok(db)
    }

    /// Connects for `tollgate migrate`: whatever the database's schema, and with time for long
    /// statements.
    ///
    /// # Errors
    /// As [`Db::connect`].
    pub async fn for_migrations(options: &PostgresOptions) -> Result<Self, DbError> {
        let limits = DatabaseTimeouts {
            statement: MIGRATION_TIMEOUT,
            work: MIGRATION_TIMEOUT,
            silence: MIGRATION_SILENCE_TIMEOUT,
        };
        Self::open(options, None, limits).await
    }

    async fn open(
        options: &PostgresOptions,
        observer: Option<DatabaseObserver>,
        limits: DatabaseTimeouts,
    ) -> Result<Self, DbError> {
        let hosts = url::hosts_of(&options.url).map_err(|error| no_url(&error))?;
        let place = url::place(&hosts);
        let config = config(options, limits)?;
        // No query to test each connection, which would cost a round trip: after a broken one a transaction
        // is tried again on another connection, and a read fails as `Unavailable`.
        let recycling_method = RecyclingMethod::Fast;
        let recycling = ManagerConfig { recycling_method };
        let tls = match options.tls {
            TlsMode::Disable => None,
            TlsMode::VerifyFull => Some(tls::connector(options.ca_file.as_deref())?),
        };
        let manager = match &tls {
            None => Manager::from_config(config.clone(), NoTls, recycling),
            Some(tls) => Manager::from_config(config.clone(), tls.clone(), recycling),
        };
        let connections_max = options.connections_max.max(1);
        let places = Arc::new(Semaphore::new(pooled::places(connections_max)));
        let pool = Pool::builder(manager)
            .max_size(connections_max)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(WAIT_TIMEOUT))
            .create_timeout(Some(OPEN_TIMEOUT))
            .recycle_timeout(Some(CONNECT_TIMEOUT))
            .build()
            .map_err(|error| DbError::Failed(error.to_string()))?;
        let shared = DatabaseState { pool, places, config, tls, limits, place, observer };
        let db = Self { shared: Arc::new(shared), is_ahead: false };
        // The pool connects when it must: a wrong address or password is to be found now.
        db.query("SELECT 1", &[]).await?;
        Ok(db)
    }

    /// Checks that the database keeps confirmed transactions. A crash of one that does not could give money
    /// out twice.
    async fn check_durability(&self) -> Result<(), DbError> {
        let row = self.query_one("SHOW synchronous_commit", &[]).await?;
        if row.try_get::<_, &str>(0)? != "off" {
            return Ok(());
        }
        let message = "synchronous_commit is off: a crash of the database would lose what it has \
                    confirmed; set it to on, for this database at least";
        Err(DbError::Failed(message.to_owned()).named(self.place()))
    }

    /// The address of the database, such as `db.internal:5432`, for messages.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.shared.place
    }

    /// Reads with one statement, which is prepared once per connection. Writes belong into [`Db::transact`]:
    /// here the outcome of a statement without an answer cannot be resolved.
    ///
    /// # Errors
    /// See [`DbError`]; never `Unknown`.
    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, DbError> {
        let begun = Instant::now();
        let operation = async {
            let mut lent = self.lend().await?;
            let rows = lent.query(sql, params).await;
            // An error that the server has answered with leaves the connection as it was.
            lent.whole = rows.as_ref().map_or_else(error::is_an_answer, |_| true);
            rows.map_err(|error| error::classify(&error).named(self.place()))
        };
        let rows = self.within(operation).await;
        self.observe(DbOperation::Query, RoundTripOutcome::from_result(&rows), begun);
        rows
    }

    /// The only row of [`Db::query`].
    ///
    /// # Errors
    /// As [`Db::query`], and when there is none or more than one.
    pub(crate) async fn query_one(&self, sql: &str, params: &[Param<'_>]) -> Result<Row, DbError> {
        let row = transaction::at_most_one(self.query(sql, params).await?, sql)?;
        row.ok_or_else(|| transaction::no_row(sql))
    }

    /// Applies a timeout. The connection is closed, since its state is unknown.
    async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, DbError>>,
    ) -> Result<T, DbError> {
        let limit = self.shared.limits.work;
        match tokio::time::timeout(limit, work).await {
            Ok(result) => result,
            Err(_) => Err(DbError::Unavailable(format!(
                "PostgreSQL at {} did not answer within {} s",
                self.place(),
                limit.as_secs()
            ))),
        }
    }

    fn observe(&self, operation: DbOperation, outcome: RoundTripOutcome, begun: Instant) {
        if let Some(observer) = &self.shared.observer {
            observer(RoundTrip { operation, outcome, took: begun.elapsed() });
        }
    }
}

impl RoundTripOutcome {
    fn from_result<T>(result: &Result<T, DbError>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(DbError::Unavailable(_)) => Self::Unavailable,
            Err(DbError::Unknown(_)) => Self::Unknown,
            Err(DbError::Failed(_)) => Self::Failed,
        }
    }
}

fn no_url(error: &dyn fmt::Display) -> DbError {
    DbError::Failed(format!("store.postgres.url cannot be used: {error}"))
}

/// Builds the client's settings: addresses, names and timeouts.
fn config(options: &PostgresOptions, limits: DatabaseTimeouts) -> Result<Config, DbError> {
    let mut config = Config::from_str(&options.url).map_err(|error| no_url(&error))?;
    if let Some(password) = &options.password {
        config.password(password.expose());
    }
    config
        .ssl_mode(match options.tls {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::VerifyFull => SslMode::Require,
        })
        .application_name(&options.application)
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_user_timeout(USER_TIMEOUT)
        .keepalives(true)
        .keepalives_idle(KEEPALIVE)
        .keepalives_interval(KEEPALIVE)
        .keepalives_retries(KEEPALIVE_RETRIES)
        // Of several hosts, the primary; and a standby alone is no database for money.
        .target_session_attrs(TargetSessionAttrs::ReadWrite)
        .options(format!(
            "-c statement_timeout={} -c idle_in_transaction_session_timeout={}",
            limits.statement.as_millis(),
            limits.silence.as_millis(),
        ));
    Ok(config)
}

/// Real servers for the unit tests.
#[cfg(test)]
#[path = "../../../tests/harness/postgres.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
pub(crate) mod server;

#[cfg(test)]
mod tests;
