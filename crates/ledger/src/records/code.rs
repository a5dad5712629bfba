//! Codes that operators hand out, as the journal has them, and why one cannot be used.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::CodeId;
use tollgate_types::secret::KeyHash;

/// Purpose of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CodeKind {
    /// Money for the account that redeems it.
    Credit,
    /// A new account, optionally with initial credit.
    Invite,
}

/// A code, without the code itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// Unique id, assigned at creation.
    pub id: CodeId,
    /// Hash of the code.
    pub hash: KeyHash,
    /// Purpose of the code.
    pub kind: CodeKind,
    /// Amount of each use; above zero.
    pub amount: Option<Nanousd>,
    /// Maximum number of uses, each by another account; above zero.
    pub uses_max: u32,
    /// Expiry; `None` for never.
    pub expires_at: Option<UnixMs>,
    /// Operator's note.
    pub note: String,
    /// Time of the creation.
    pub created_at: UnixMs,
}

/// A code with its use and revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCode {
    /// The code as it was created.
    pub code: Arc<Code>,
    /// Number of uses so far.
    pub used: usize,
    /// Time when it was revoked.
    pub revoked_at: Option<UnixMs>,
}

/// Reason why a code cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeRefusal {
    /// The code does not exist, or has another purpose.
    Unknown,
    /// The code was revoked.
    Revoked,
    /// Its time is over.
    Expired,
    /// It was used as often as it can be.
    UsedUp,
    /// This account has used it.
    UsedBefore,
}

impl fmt::Display for CodeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "there is no such code",
            Self::Revoked => "the code was revoked",
            Self::Expired => "the code has expired",
            Self::UsedUp => "the code was used as often as it can be",
            Self::UsedBefore => "the account has used this code before",
        })
    }
}
