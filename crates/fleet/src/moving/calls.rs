//! The calls of an account, and what was paid of its debts, whichever nodes made them, in the order of
//! time.

use std::collections::VecDeque;

use super::MoveError;
use crate::postgres::Db;
use tollgate_ledger::moving::read_lines;
use tollgate_ledger::{AccountId, JournaledRecord, NodeId, Record, Seq};

/// Lines about calls, oldest first. At most a query's worth of each node's is in memory.
pub(super) struct CallLines<'a> {
    db: &'a Db,
    account: AccountId,
    nodes: Vec<NodeCallLines>,
}

/// Call lines of one node, read page by page.
struct NodeCallLines {
    node: NodeId,
    /// Last position of the last chunk read.
    after: Seq,
    lines: VecDeque<JournaledRecord>,
    is_over: bool,
}

impl<'a> CallLines<'a> {
    /// The calls of an account on these nodes.
    pub(super) fn new(db: &'a Db, account: AccountId, nodes: &[NodeId]) -> Self {
        let of_node = |node: &NodeId| NodeCallLines {
            node: *node,
            after: node.begin(),
            lines: VecDeque::new(),
            is_over: false,
        };
        Self { db, account, nodes: nodes.iter().map(of_node).collect() }
    }

    /// The oldest remaining record.
    pub(super) async fn next(&mut self) -> Result<Option<JournaledRecord>, MoveError> {
        for node in &mut self.nodes {
            while node.lines.is_empty() && !node.is_over {
                let chunks = self.db.chunks_of(self.account, node.node, node.after).await?;
                let Some((last, _)) = chunks.last() else {
                    node.is_over = true;
                    continue;
                };
                node.after = *last;
                for (_, bytes) in &chunks {
                    let lines = read_lines(bytes)?.into_iter();
                    node.lines.extend(lines.filter(|line| is_call_line(&line.record)));
                }
                // The end of a task stands at the place of its hold.
                let lines = node.lines.make_contiguous();
                lines.sort_by_key(|line| (line.record.at(), line.seq));
            }
        }
        let oldest = self
            .nodes
            .iter_mut()
            .filter(|node| !node.lines.is_empty())
            .min_by_key(|node| node.lines.front().map(|line| (line.record.at(), line.seq)));
        Ok(oldest.and_then(|node| node.lines.pop_front()))
    }
}

/// True if a statement line belongs to a call or a debt payment.
fn is_call_line(record: &Record) -> bool {
    record.ends_hold() || matches!(record, Record::DebtPaid { .. })
}
