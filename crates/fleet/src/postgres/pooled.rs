//! Connections that are lent: those of the pool, some of which are kept for the node itself.

use std::sync::Arc;

use deadpool_postgres::{Object, PoolError, TimeoutType};
use tokio::sync::OwnedSemaphorePermit;
use tokio_postgres::Row;

use super::{Db, DbError, OPEN_TIMEOUT, Param, WAIT_TIMEOUT, error};

/// The most connections that are kept for what the node itself does, one thing of each kind at a time:
/// its syncs about money, those about limits, and the directory. Half of them, where there are few.
const KEPT_MAX: usize = 3;

/// The number of connections for customers and operators, out of `connections_max`.
pub(super) fn places(connections_max: usize) -> usize {
    connections_max.saturating_sub(KEPT_MAX.min(connections_max / 2))
}

impl Db {
    /// The database with the reserved connections, for the node itself: it never waits for reads.
    pub(super) fn ahead(&self) -> Self {
        Self { is_ahead: true, ..self.clone() }
    }

    /// A connection of the pool.
    pub(super) async fn lend(&self) -> Result<PooledConnection, DbError> {
        // In line before the pool: its own queue is for whoever may have a connection, so the node's syncs
        // never stand behind reads.
        let place = if self.is_ahead { None } else { Some(self.place_in_line().await?) };
        let object = self.shared.pool.get().await.map_err(|error| self.no_connection(error))?;
        Ok(PooledConnection { object: Some(object), whole: false, _place: place })
    }

    /// Waits for the right to use a connection, first come first served.
    async fn place_in_line(&self) -> Result<OwnedSemaphorePermit, DbError> {
        let place = Arc::clone(&self.shared.places).acquire_owned();
        match tokio::time::timeout(WAIT_TIMEOUT, place).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(self.no_connection(PoolError::Timeout(TimeoutType::Wait))),
        }
    }

    fn no_connection(&self, error: PoolError) -> DbError {
        let place = self.place();
        match error {
            PoolError::Backend(error) => error::classify(&error).named(place),
            PoolError::Timeout(TimeoutType::Wait) => DbError::Unavailable(format!(
                "every connection to PostgreSQL at {place} is in use; store.postgres.connections \
                 says how many there may be"
            )),
            PoolError::Timeout(_) => DbError::Unavailable(format!(
                "PostgreSQL at {place} did not answer within {} s",
                OPEN_TIMEOUT.as_secs()
            )),
            error => DbError::Unavailable(format!("PostgreSQL at {place}: {error}")),
        }
    }
}

/// A connection that returns to the pool only if its transaction is finished; otherwise it is closed, and the
/// server rolls back.
pub(super) struct PooledConnection {
    object: Option<Object>,
    pub(super) whole: bool,
    _place: Option<OwnedSemaphorePermit>,
}

impl PooledConnection {
    /// The client, while the connection is lent.
    pub(super) fn client(&self) -> Result<&Object, tokio_postgres::Error> {
        // The driver has no public constructor of an error. None is made: only `drop` takes the object.
        self.object.as_ref().ok_or_else(tokio_postgres::Error::__private_api_timeout)
    }

    pub(super) async fn query(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let client = self.client()?;
        let statement = client.prepare_cached(sql).await?;
        client.query(&statement, params).await
    }

    pub(super) async fn execute(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<u64, tokio_postgres::Error> {
        let client = self.client()?;
        let statement = client.prepare_cached(sql).await?;
        client.execute(&statement, params).await
    }

    pub(super) async fn batch(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.client()?.batch_execute(sql).await
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(object) = self.object.take()
            && !self.whole
        {
            // Detached from the pool, so that it is closed; the server rolls back what was open.
            drop(Object::take(object));
        }
    }
}
