//! Keys of the playground: temporary, and known by their name and lifetime.

use super::CustomerConsole;
use super::customer::LoggedInCustomer;
use tollgate_ledger::{Key, KeyPatch, LedgerError};
use tollgate_types::clock::UnixMs;

/// Name of the playground's keys.
pub(super) const KEY_NAME: &str = "Playground";
/// Lifetime of such a key, in milliseconds.
pub(super) const KEY_LIFETIME_MS: u64 = 3_600_000;

/// True for a key of the playground.
pub(super) fn is_playground_key(key: &Key) -> bool {
    // By the lifetime as well: a customer may call a key of their own `Playground`.
    let lives = key.expires_at.map(|end| end.0.saturating_sub(key.created_at.0));
    key.name == KEY_NAME && lives.is_some_and(|lives| lives <= KEY_LIFETIME_MS)
}

/// Switches off the keys that the playground was given.
pub(super) async fn end(
    console: &CustomerConsole,
    customer: &LoggedInCustomer,
) -> Result<(), LedgerError> {
    let now = UnixMs::now();
    for key in console.ledger.keys_of(customer.account.id) {
        if is_playground_key(&key) && !key.disabled && !key.is_expired(now) {
            let patch = KeyPatch { disabled: Some(true), ..KeyPatch::default() };
            customer.update_key(console, key.id, patch).await?;
        }
    }
    Ok(())
}
