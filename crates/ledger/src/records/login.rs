//! Logins of customers, as recorded in the journal.

use std::fmt;

use serde::{Deserialize, Serialize};

use tollgate_types::clock::UnixMs;
use tollgate_types::ids::AccountId;

/// Id of a session: 16 random bytes.
pub type SessionId = [u8; 16];

/// Login of a customer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// Account of the login.
    pub account: AccountId,
    /// The address, as [`normal_email`] writes it: no two accounts have the same.
    pub email: String,
    /// The PHC string of the password's Argon2id hash.
    pub password: String,
    /// Time of the last change; older sessions are void.
    pub since: UnixMs,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({}, {:?}, ***, {})", self.account, self.email, self.since.0)
    }
}
