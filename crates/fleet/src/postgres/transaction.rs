//! Transactions: all of it or nothing, and an honest word about which.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio_postgres::{Error, Row};

use super::{Db, DbError, DbOperation, Param, PooledConnection, RoundTripOutcome, error};

/// The most tries of one transaction. Each conflict means that another one got through, so this many
/// in a row come only from a row that hundreds want at once.
const TRIES_MAX: u32 = 12;
/// The wait before the second try is random below this, and doubles with each try.
const FIRST_WAIT: Duration = Duration::from_millis(4);
/// The longest wait between two tries.
const WAIT_MAX: Duration = Duration::from_millis(200);

/// An open transaction. `'env` is the lifetime of borrowed data.
pub struct Transaction<'env> {
    lent: PooledConnection,
    place: &'env str,
    /// The first thing that went wrong: the server refuses everything behind it.
    first_failure: Mutex<Option<AttemptFailure>>,
    borrowed: PhantomData<&'env ()>,
}

struct AttemptFailure {
    conflict: bool,
    broken: bool,
    error: DbError,
}

/// The outcome of one attempt.
enum TransactionAttempt<T> {
    Ended(Result<T, DbError>),
    /// Nothing was done, and it may go better on another try.
    Again(DbError),
}

pub(super) fn no_row(sql: &str) -> DbError {
    DbError::Failed(format!("one row was expected of: {sql}"))
}

pub(super) fn at_most_one(mut rows: Vec<Row>, sql: &str) -> Result<Option<Row>, DbError> {
    let row = rows.pop();
    if rows.is_empty() {
        return Ok(row);
    }
    Err(DbError::Failed(format!("at most one row was expected of: {sql}")))
}

impl Transaction<'_> {
    /// Rows of a statement, which is prepared once per connection.
    ///
    /// # Errors
    /// See [`DbError`]; never `Unknown`. The transaction can only be rolled back then.
    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, DbError> {
        self.keep(self.lent.query(sql, params).await)
    }

    /// The only row.
    ///
    /// # Errors
    /// As [`Transaction::query`], and when there is none or more than one.
    pub async fn query_one(&self, sql: &str, params: &[Param<'_>]) -> Result<Row, DbError> {
        self.query_opt(sql, params).await?.ok_or_else(|| no_row(sql))
    }

    /// The only row, if there is one.
    ///
    /// # Errors
    /// As [`Transaction::query`], and when there is more than one.
    pub async fn query_opt(&self, sql: &str, params: &[Param<'_>]) -> Result<Option<Row>, DbError> {
        at_most_one(self.query(sql, params).await?, sql)
    }

    /// Runs a statement and returns the number of changed rows.
    ///
    /// # Errors
    /// As [`Transaction::query`].
    pub async fn execute(&self, sql: &str, params: &[Param<'_>]) -> Result<u64, DbError> {
        self.keep(self.lent.execute(sql, params).await)
    }

    /// Several statements without values and without rows, such as a migration.
    ///
    /// # Errors
    /// As [`Transaction::query`].
    pub async fn batch(&self, sql: &str) -> Result<(), DbError> {
        self.keep(self.lent.batch(sql).await)
    }

    fn keep<T>(&self, result: Result<T, Error>) -> Result<T, DbError> {
        result.map_err(|cause| {
            let error = error::classify(&cause).named(self.place);
            let (conflict, broken) = (error::is_a_conflict(&cause), !error::is_an_answer(&cause));
            let failure = AttemptFailure { conflict, broken, error: error.clone() };
            self.first_failure.lock().get_or_insert(failure);
            error
        })
    }
}

impl Db {
    /// Runs `work` in a transaction and commits it. After a conflict, or a connection that broke before the
    /// end, it is repeated a bounded number of times: `work` must do the same each time.
    ///
    /// # Errors
    /// See [`DbError`]: `Unavailable` and `Failed` say that nothing was done. An error of `work` itself
    /// rolls back and is handed on.
    pub async fn transact<'env, T, W>(&'env self, work: W) -> Result<T, DbError>
    where
        T: Send,
        W: for<'a> Fn(&'a Transaction<'env>) -> BoxFuture<'a, Result<T, DbError>> + Send + Sync,
    {
        let mut wait = FIRST_WAIT;
        let deadline = Instant::now() + self.shared.limits.work;
        let mut tries = 0;
        loop {
            let begun = Instant::now();
            tries += 1;
            let again = match Box::pin(self.attempt(&work, deadline)).await {
                TransactionAttempt::Ended(result) => {
                    self.observe(
                        DbOperation::Transaction,
                        RoundTripOutcome::from_result(&result),
                        begun,
                    );
                    return result;
                }
                TransactionAttempt::Again(error) => error,
            };
            if tries == TRIES_MAX || Instant::now() + wait >= deadline {
                let result = Err(again);
                self.observe(
                    DbOperation::Transaction,
                    RoundTripOutcome::from_result(&result),
                    begun,
                );
                return result;
            }
            self.observe(DbOperation::Transaction, RoundTripOutcome::Retried, begun);
            tokio::time::sleep(wait.mul_f64(fastrand::f64())).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    /// Runs a transaction like [`Db::transact`], for work that can be refused: a refusal rolls back what was
    /// written before it, and is returned.
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub(super) async fn transact_or_refuse<'env, T, R, W>(
        &'env self,
        work: W,
    ) -> Result<Result<T, R>, DbError>
    where
        T: Send + 'env,
        R: Send + 'env,
        W: for<'a> Fn(&'a Transaction<'env>) -> BoxFuture<'a, Result<Result<T, R>, DbError>>
            + Send
            + Sync,
    {
        let refusal = Arc::new(Mutex::new(None));
        let of_last_try = Arc::clone(&refusal);
        let done = self.transact(move |tx| {
            let (work, refusal) = (work(tx), Arc::clone(&of_last_try));
            Box::pin(async move {
                // A conflict may have ended an earlier try behind its refusal: that one decided nothing.
                *refusal.lock() = None;
                work.await?.map_err(|why| {
                    *refusal.lock() = Some(why);
                    // Only an error rolls back.
                    DbError::Failed("the transaction was refused".to_owned())
                })
            })
        });
        let done = done.await;
        let refusal = refusal.lock().take();
        match (done, refusal) {
            (Err(DbError::Failed(_)), Some(why)) => Ok(Err(why)),
            (done, _) => done.map(Ok),
        }
    }

    /// Runs one statement in a transaction of its own, and returns the number of changed rows.
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub(super) async fn execute(&self, sql: &str, params: &[Param<'_>]) -> Result<u64, DbError> {
        self.transact(|tx| Box::pin(tx.execute(sql, params))).await
    }

    async fn attempt<'env, T, W>(&'env self, work: &W, deadline: Instant) -> TransactionAttempt<T>
    where
        T: Send,
        W: for<'a> Fn(&'a Transaction<'env>) -> BoxFuture<'a, Result<T, DbError>> + Send + Sync,
    {
        let before_commit = tokio::time::timeout_at(deadline.into(), self.prepare(work));
        let (transaction, value) = match before_commit.await {
            Ok(Ok(done)) => done,
            Ok(Err(tried)) => return tried,
            Err(_) => return TransactionAttempt::Ended(Err(self.too_late())),
        };
        self.commit(transaction.lent, value).await
    }

    /// Begins a transaction and does the work in it: everything up to COMMIT.
    async fn prepare<'env, T, W>(
        &'env self,
        work: &W,
    ) -> Result<(Transaction<'env>, T), TransactionAttempt<T>>
    where
        T: Send,
        W: for<'a> Fn(&'a Transaction<'env>) -> BoxFuture<'a, Result<T, DbError>> + Send + Sync,
    {
        let lent = self.lend().await.map_err(|error| TransactionAttempt::Ended(Err(error)))?;
        let place = self.place();
        let first_failure = Mutex::new(None);
        let mut transaction = Transaction { lent, place, first_failure, borrowed: PhantomData };
        // Whatever the server's default: every statement here is safe at this level, and none needs
        // more.
        if let Err(error) = transaction.batch("BEGIN ISOLATION LEVEL READ COMMITTED").await {
            return Err(transaction.tried(Err(error)));
        }
        let result = work(&transaction).await;
        let failed = transaction.first_failure.lock().is_some();
        match result {
            Ok(value) if !failed => Ok((transaction, value)),
            result => {
                let broken = transaction.first_failure.lock().as_ref().is_some_and(|f| f.broken);
                if !broken {
                    transaction.lent.whole = transaction.lent.batch("ROLLBACK").await.is_ok();
                }
                Err(transaction.tried(result.map(|_| ())))
            }
        }
    }

    async fn commit<T>(&self, mut lent: PooledConnection, value: T) -> TransactionAttempt<T> {
        // A connection that has ended by now takes no COMMIT: that is known to be not done.
        if lent.client().map_or(true, |client| client.is_closed()) {
            let error = DbError::Unavailable("the connection broke before COMMIT".to_owned());
            return TransactionAttempt::Again(error.named(self.place()));
        }
        let commit = tokio::time::timeout(super::WORK_TIMEOUT, lent.batch("COMMIT")).await;
        match commit {
            Ok(Ok(())) => {
                lent.whole = true;
                TransactionAttempt::Ended(Ok(value))
            }
            Ok(Err(cause)) => {
                lent.whole = error::is_an_answer(&cause);
                let error = error::classify_commit(&cause).named(self.place());
                match error {
                    DbError::Unavailable(_) if error::is_a_conflict(&cause) => {
                        TransactionAttempt::Again(error)
                    }
                    error => TransactionAttempt::Ended(Err(error)),
                }
            }
            Err(_) => {
                let late =
                    format!("no answer to COMMIT within {} s", super::WORK_TIMEOUT.as_secs());
                TransactionAttempt::Ended(Err(DbError::Unknown(late).named(self.place())))
            }
        }
    }

    fn too_late(&self) -> DbError {
        let limit = self.shared.limits.work.as_secs();
        DbError::Unavailable(format!("the transaction was not done within {limit} s"))
            .named(self.place())
    }
}

impl Transaction<'_> {
    /// The outcome of an attempt before COMMIT: the first failed statement decides, even if the work ignored
    /// it.
    fn tried<T>(self, result: Result<(), DbError>) -> TransactionAttempt<T> {
        match (self.first_failure.into_inner(), result) {
            (Some(AttemptFailure { error, conflict, broken }), _) if conflict || broken => {
                match error {
                    // It broke while nothing was sent that could stay.
                    DbError::Unavailable(_) => TransactionAttempt::Again(error),
                    error => TransactionAttempt::Ended(Err(error)),
                }
            }
            (_, Err(error)) => TransactionAttempt::Ended(Err(error)),
            // PostgreSQL answers COMMIT with success here, and rolls back.
            (Some(AttemptFailure { error, .. }), Ok(())) => TransactionAttempt::Ended(Err(error)),
            (None, Ok(())) => {
                TransactionAttempt::Ended(Err(DbError::Failed("no failure".to_owned())))
            }
        }
    }
}
