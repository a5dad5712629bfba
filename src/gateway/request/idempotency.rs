//! Idempotency marks of submits.

use std::time::Duration;

use pingora::http::RequestHeader;
use sha2::{Digest, Sha256};

use crate::config::snapshot::Snapshot;
use crate::error::GatewayError;
use crate::ledger::{Key, REPEATED_WITHIN, RepeatKey};
use crate::protocols::Request;

/// The header with which a customer marks repetitions of a submit.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The member of a body that says whether its customer waits for the end of the task.
const WAIT: &str = "wait";
/// The longest such mark.
const MARK_BYTES_MAX: usize = 255;

/// The idempotency mark of a submit, and for how long after its answer it is recognised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdempotencyMark {
    pub(crate) repeat: RepeatKey,
    pub(crate) within: Duration,
    /// True if the client named the key; else it is derived from the body.
    pub(crate) is_named: bool,
}

/// The idempotency mark of the request, for this key and path: the client's name for it, else a hash of its
/// body for as long as the operator has configured.
///
/// # Errors
/// A mark that is none.
pub(crate) fn mark(
    head: &RequestHeader,
    snapshot: &Snapshot,
    key: &Key,
    request: &Request<'_>,
    body: &[u8],
) -> Result<Option<IdempotencyMark>, GatewayError> {
    let name = |kind: u8, value: &[u8]| -> [u8; 32] {
        let key = key.id.number().to_be_bytes();
        // Of the key and the path: customers' names are theirs, and two operations do not share them.
        let name = Sha256::new().chain_update(key).chain_update(head.uri.path());
        name.chain_update([kind]).chain_update(value).finalize().into()
    };
    let Some(value) = head.headers.get(IDEMPOTENCY_KEY) else {
        let window = snapshot.tasks.repeat_window;
        return Ok(window.map(|within| {
            let body = wish(request, body);
            IdempotencyMark {
                repeat: RepeatKey { key: name(1, &body), body },
                within,
                is_named: false,
            }
        }));
    };
    let value = value.as_bytes();
    if value.is_empty() || value.len() > MARK_BYTES_MAX {
        let message = format!("Idempotency-Key must have 1 to {MARK_BYTES_MAX} characters.");
        return Err(GatewayError::invalid("Idempotency-Key", message));
    }
    let repeat = RepeatKey { key: name(0, value), body: Sha256::digest(body).into() };
    Ok(Some(IdempotencyMark { repeat, within: REPEATED_WITHIN, is_named: true }))
}

/// The SHA-256 of what a body asks for, whether or not it waits for that: who has waited in vain may ask
/// again without.
fn wish(request: &Request<'_>, body: &[u8]) -> [u8; 32] {
    let mut digest = Sha256::new();
    let mut from = 0;
    let waits = request.json().map(|object| object.member_ranges(&[WAIT])).unwrap_or_default();
    for range in waits {
        digest.update(body.get(from..range.start).unwrap_or_default());
        from = range.end;
    }
    digest.update(body.get(from..).unwrap_or_default());
    digest.finalize().into()
}
