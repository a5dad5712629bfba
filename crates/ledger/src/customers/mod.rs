//! Writes of customers: logins, sessions, codes, sign-up, and limits of their keys.
//!
//! It may import `tasks`, `calls`, `reading`, `memory` and the layers below.

pub(crate) mod account;
pub(crate) mod code;
pub(crate) mod holds;
pub(crate) mod limit;
pub(crate) mod login;
pub(crate) mod sign_up;
