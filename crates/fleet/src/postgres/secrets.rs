//! Keys that all nodes have in common.

use futures_util::FutureExt as _;

use super::{Db, DbError};
use tollgate_types::secret::Secret;

impl Db {
    /// The fleet's secret of this name: the stored one, or `own` if there is none.
    ///
    /// # Errors
    /// [`DbError`]; asking again is safe.
    pub(crate) async fn shared_secret(&self, name: &str, own: &Secret) -> Result<Secret, DbError> {
        const OFFER: &str = "INSERT INTO tollgate.secrets (name, value) VALUES ($1, $2)
            ON CONFLICT (name) DO NOTHING";
        const READ: &str = "SELECT value FROM tollgate.secrets WHERE name = $1";
        let value = own.expose();
        let offer = self.transact(|tx| {
            async move {
                // Of two nodes that offer at one time the first one's stands, and both read that.
                tx.execute(OFFER, &[&name, &value]).await?;
                let row = tx.query_one(READ, &[&name]).await?;
                Ok(row.try_get::<_, String>(0)?)
            }
            .boxed()
        });
        Ok(Secret::new(offer.await?))
    }
}
