//! Reads of the database for a move out of it.

use std::time::Duration;

use super::super::columns::{amount, count, id, node, number};
use super::super::{Db, DbError, Transaction};
use super::tallies;
use crate::lease::{Epoch, Turn};
use tollgate_ledger::moving::Tallies;
use tollgate_ledger::{AccountId, NodeId, Seq};
use tollgate_money::money::Nanousd;

/// Chunks of statements that one query reads, at 16 KB each.
const CHUNKS_MAX: i64 = 64;

/// A node as it must be before anything moves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeOut {
    /// The number of the node.
    pub(crate) node: NodeId,
    /// The operators' name for it.
    pub(crate) name: String,
    /// Its life, and its last turn: they stay while it is stopped.
    pub(crate) at: (Epoch, Turn),
    /// The time until the treasury considers it silent.
    pub(crate) term_left: Duration,
    /// The sum of its leases.
    pub(crate) out: Nanousd,
}

/// The end of the directory, and its state of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryHead {
    /// The last place of the directory.
    pub(crate) seq: Seq,
    /// Id of the move that has taken everything out.
    pub(crate) moved_out: Option<String>,
}

/// Refuses to join a fleet that has moved out. Whoever moves it out waits for the end of this
/// transaction, or this waits for the end of theirs.
pub(in crate::postgres) async fn is_still_here(tx: &Transaction<'_>) -> Result<(), DbError> {
    let sql = "SELECT moved_out FROM tollgate.head WHERE id = 1 FOR SHARE";
    match tx.query_one(sql, &[]).await?.try_get::<_, Option<String>>(0)? {
        None => Ok(()),
        Some(_) => Err(DbError::Failed(
            "the money of this fleet was moved out of the database, into the ledger of a single \
             gateway: no node can join it any more"
                .to_owned(),
        )),
    }
}

impl Db {
    /// Position of the last entry of the fleet's directory, and the id of the move that took everything out,
    /// if any.
    pub(crate) async fn head(&self) -> Result<DirectoryHead, DbError> {
        let sql = "SELECT seq, moved_out FROM tollgate.head WHERE id = 1";
        let row = self.query_one(sql, &[]).await?;
        Ok(DirectoryHead { seq: count(row.try_get(0)?), moved_out: row.try_get(1)? })
    }

    /// All nodes, by their numbers.
    pub(crate) async fn nodes_out(&self) -> Result<Vec<NodeOut>, DbError> {
        let sql = "SELECT n.id, n.name, n.epoch, n.turn,
                GREATEST(extract(epoch FROM n.term_ends - now()) * 1000, 0)::bigint,
                COALESCE((SELECT sum(amount) FROM tollgate.leases l WHERE l.node = n.id), 0)::bigint
            FROM tollgate.nodes n ORDER BY n.id";
        let mut nodes = Vec::new();
        for row in self.query(sql, &[]).await? {
            nodes.push(NodeOut {
                node: node(&row, 0)?,
                name: row.try_get(1)?,
                at: (count(row.try_get(2)?), count(row.try_get(3)?)),
                term_left: Duration::from_millis(count(row.try_get(4)?)),
                out: Nanousd::new(row.try_get(5)?),
            });
        }
        Ok(nodes)
    }

    /// The money of an account that counts as spent because the nodes that leased it are silent.
    pub(crate) async fn charged_in_suspense(&self, account: AccountId) -> Result<Nanousd, DbError> {
        let sql = "SELECT COALESCE(SUM(charged), 0)::bigint FROM tollgate.resolved
                   WHERE account = $1";
        amount(&self.query_one(sql, &[&account.to_string()]).await?, 0)
    }

    /// The accounts, by their ids.
    pub(crate) async fn account_ids(&self) -> Result<Vec<AccountId>, DbError> {
        let rows = self.query("SELECT id FROM tollgate.accounts ORDER BY id", &[]).await?;
        rows.iter().map(|row| id(row.try_get(0)?)).collect()
    }

    /// Counts the rows of these accounts, except for the directory and statements.
    pub(crate) async fn tallies_of(&self, accounts: &[AccountId]) -> Result<Tallies, DbError> {
        let ids: Vec<String> = accounts.iter().map(AccountId::to_string).collect();
        let ids = &ids;
        self.transact(|tx| Box::pin(async move { tallies(tx, ids).await })).await
    }

    /// Reads chunks of an account's statement with a node's calls, after a given one, with the last position
    /// of each.
    pub(crate) async fn chunks_of(
        &self,
        account: AccountId,
        node: NodeId,
        after: Seq,
    ) -> Result<Vec<(Seq, Vec<u8>)>, DbError> {
        let sql = "SELECT last_seq, bytes FROM tollgate.entries
            WHERE account = $1 AND last_seq > $2 AND last_seq <= $3 ORDER BY last_seq LIMIT $4";
        let (account, after, end) = (account.to_string(), number(after), number(node.end()));
        let rows = self.query(sql, &[&account, &after, &end, &CHUNKS_MAX]).await?;
        rows.iter().map(|row| Ok((count(row.try_get(0)?), row.try_get(1)?))).collect()
    }

    /// Marks the fleet as moved out, unless anything has changed since `head` and `nodes` were read. After
    /// that, no node can join and running nodes get no answers.
    ///
    /// # Errors
    /// See [`DbError`]. After `Unknown` [`Db::head`] tells.
    pub(crate) async fn mark_moved_out(
        &self,
        id: &str,
        head: Seq,
        nodes: &[NodeOut],
    ) -> Result<bool, DbError> {
        let marked = self.transact(|tx| {
            Box::pin(async move {
                // The head first: whoever writes or joins waits for its row, and finds the fleet left.
                let sql = "UPDATE tollgate.head SET moved_out = $1
                    WHERE id = 1 AND seq = $2 AND (moved_out IS NULL OR moved_out = $1)";
                if tx.execute(sql, &[&id, &number(head)]).await? == 0 {
                    return Ok(false);
                }
                let sql = "SELECT id, epoch, turn FROM tollgate.nodes ORDER BY id FOR UPDATE";
                let mut found = Vec::new();
                for row in tx.query(sql, &[]).await? {
                    let (node, epoch, turn): (i32, i64, i64) =
                        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                    found.push((node, count(epoch), count(turn)));
                }
                let expected: Vec<_> = nodes
                    .iter()
                    .map(|node| (i32::from(node.node.number()), node.at.0, node.at.1))
                    .collect();
                if found != expected {
                    return Err(DbError::Failed(
                        "a node was started while the fleet was moved out".to_owned(),
                    ));
                }
                tx.execute("UPDATE tollgate.nodes SET epoch = epoch + 1", &[]).await?;
                Ok(true)
            })
        });
        marked.await
    }
}
