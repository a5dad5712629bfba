//! API keys of customers, as the journal has them.

use serde::{Deserialize, Serialize};

use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, KeyId};
use tollgate_types::secret::KeyHash;

/// A customer's API key, without the key itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Unique id, assigned at creation.
    pub id: KeyId,
    /// Account that pays for its calls.
    pub account: AccountId,
    /// Hash of the key.
    pub hash: KeyHash,
    /// Name given by the owner.
    pub name: String,
    /// Models that the key may use; `None` for all.
    pub models: Option<Vec<String>>,
    /// Expiry; `None` for never.
    pub expires_at: Option<UnixMs>,
    /// True if it was disabled.
    pub disabled: bool,
    /// Time of the creation.
    pub created_at: UnixMs,
    /// Time of the last change.
    pub updated_at: UnixMs,
}

impl Key {
    /// True if the key has no list of models, or if the list has this name or the model's id.
    #[must_use]
    pub fn may_use(&self, name: &str, model: &str) -> bool {
        let is_listed =
            |models: &Vec<String>| models.iter().any(|listed| listed == name || listed == model);
        self.models.as_ref().is_none_or(is_listed)
    }

    /// True if it was revoked: disabled, with an expiry in the past. It is kept because old charges
    /// refer to it.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        // By the time of the change, not now: a disabled key that merely runs out later was never
        // revoked.
        self.disabled && self.is_expired(self.updated_at)
    }

    /// True if it has expired.
    #[must_use]
    pub fn is_expired(&self, now: UnixMs) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }
}
