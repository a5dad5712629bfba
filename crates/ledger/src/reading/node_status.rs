//! Status of a fleet's node, from its own point of view.

use crate::memory::Ledger;
use crate::ports::node_status::{JournalProgress, NodeStatus};

impl Ledger {
    /// Status of this node; `None` without a fleet. Sends no request.
    #[must_use]
    pub fn node_status(&self) -> Option<NodeStatus> {
        let funds = self.shared_funds()?;
        let progress = JournalProgress { last: self.journal.last_seq(), followed: self.followed() };
        Some(funds.node_status(progress))
    }
}
