//! How a node of a fleet is doing, as it knows itself.

use crate::memory::ledger::Ledger;
use crate::ports::node_status::{JournalProgress, NodeStatus};

impl Ledger {
    /// How this node of a fleet is doing; `None` in a single gateway. Asks nobody.
    #[must_use]
    pub fn node_status(&self) -> Option<NodeStatus> {
        let funds = self.shared_funds()?;
        let progress = JournalProgress { last: self.journal.last_seq(), followed: self.followed() };
        Some(funds.node_status(progress))
    }
}
