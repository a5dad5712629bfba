//! How customers log in, as the journal has it.

use std::fmt;

use serde::{Deserialize, Serialize};

use tollgate_types::clock::UnixMs;
use tollgate_types::ids::AccountId;

/// What names a session: 16 random bytes.
pub type SessionId = [u8; 16];

/// How a customer logs in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// Whose account it opens.
    pub account: AccountId,
    /// The address, as [`normal_email`] writes it: no two accounts have the same.
    pub email: String,
    /// The PHC string of the password's Argon2id hash.
    pub password: String,
    /// When it was set: sessions from before are void.
    pub since: UnixMs,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({}, {:?}, ***, {})", self.account, self.email, self.since.0)
    }
}
