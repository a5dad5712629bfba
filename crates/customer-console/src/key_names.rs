//! Names of an account's keys by id, since ledger, usage and requests only have ids.

use std::collections::HashMap;
use std::sync::Arc;

use super::CustomerConsole;
use super::customer::LoggedInCustomer;
use tollgate_ledger::{Key, KeyId};

/// The keys of one account.
pub(super) struct KeyNames {
    /// The keys of the account, the oldest first.
    keys: Vec<Arc<Key>>,
    places: HashMap<KeyId, usize>,
}

impl KeyNames {
    /// Key names of the session's account.
    pub(super) fn load(console: &CustomerConsole, customer: &LoggedInCustomer) -> Self {
        Self::new(console.ledger.keys_of(customer.account.id))
    }

    fn new(keys: Vec<Arc<Key>>) -> Self {
        let places = keys.iter().enumerate().map(|(place, key)| (key.id, place)).collect();
        Self { keys, places }
    }

    /// All keys, oldest first.
    pub(super) fn all(&self) -> &[Arc<Key>] {
        &self.keys
    }

    /// True if the account has this key.
    pub(super) fn has(&self, id: KeyId) -> bool {
        self.places.contains_key(&id)
    }

    /// Name that its owner gave the key.
    pub(super) fn name(&self, id: KeyId) -> String {
        let key = self.places.get(&id).and_then(|place| self.keys.get(*place));
        key.map_or_else(|| id.to_string(), |key| key.name.clone())
    }
}
