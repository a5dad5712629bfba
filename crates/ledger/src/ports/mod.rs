//! Where money, tasks and what people write are, when several ledgers share them: traits that whoever
//! shares them implements, chosen when the ledger is opened. A ledger that is given none has all of it
//! itself.
//!
//! It may import the layers below, from `maintenance` on.

pub(crate) mod funds;
pub(crate) mod node_status;
pub(crate) mod tasks;
pub(crate) mod writes;
