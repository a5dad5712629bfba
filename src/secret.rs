//! Secrets, and how they are kept in a file.

pub use tollgate_ledger::write_private;
pub use tollgate_types::secret::{API_KEY_PREFIX, CODE_PREFIX, KeyHash, Secret, random_bytes};
