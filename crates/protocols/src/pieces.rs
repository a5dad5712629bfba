//! Responses as tests relay them: in pieces, as a network might cut them.

use bytes::Bytes;

use super::Meter;

/// Relays a response in pieces of `size` bytes. Gives what the customer reads, and the meter.
pub(super) fn relay(
    mut meter: Box<dyn Meter>,
    response: &str,
    size: usize,
) -> (String, Box<dyn Meter>) {
    let mut out = Vec::new();
    for piece in response.as_bytes().chunks(size) {
        out.extend_from_slice(&meter.relay(Bytes::copy_from_slice(piece)));
    }
    out.extend_from_slice(&meter.finish());
    (String::from_utf8(out).expect("UTF-8"), meter)
}
