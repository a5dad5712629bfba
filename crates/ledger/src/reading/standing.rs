//! How a node of a fleet is doing, as it knows itself.

use crate::memory::ledger::Ledger;
use crate::seam::standing::{Progress, Standing};

impl Ledger {
    /// How this node of a fleet is doing; `None` in a single gateway. Asks nobody.
    #[must_use]
    pub fn standing(&self) -> Option<Standing> {
        let funds = self.shared_funds()?;
        let progress = Progress { last: self.journal.last_seq(), followed: self.followed() };
        Some(funds.standing(progress))
    }
}
