//! What customers write: logins, sessions, codes, signing up, and the limits of their keys.
//!
//! It may import `tasks`, `calls`, `reading`, `memory` and the layers below.

pub(in crate::ledger) mod code;
pub(in crate::ledger) mod limit;
pub(in crate::ledger) mod login;
pub(in crate::ledger) mod sign_up;
