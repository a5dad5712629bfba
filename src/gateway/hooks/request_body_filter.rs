//! `request_body_filter`: the request body in the protocol and model name of the target.

use bytes::Bytes;

use crate::gateway::request::sending::Sending;
use crate::gateway::request::services::Gateway;
use crate::pipeline::AdmittedRequest;

/// Rewrites the body, a large one off the event loop: copying tens of megabytes in place would hold up every
/// other request of the thread.
pub(super) async fn filter<T>(
    gateway: &Gateway,
    sending: &Sending,
    rewrite: impl FnOnce(&AdmittedRequest, &Bytes) -> Option<T>,
) -> Option<T> {
    let body = &sending.body.bytes;
    gateway.offload.run(body.len(), || rewrite(&sending.admitted, body)).await
}
