//! What goes to a target.

use bytes::Bytes;

use crate::config::snapshot::Target;
use crate::pipeline::Admitted;
use crate::pipeline::resolve::codec_for;

/// A request as one target gets it.
#[derive(Debug)]
pub struct UpstreamRequest {
    /// Path and no query: the upstream's prefix and the protocol's own path.
    pub path: String,
    /// The `Host` header.
    pub authority: String,
    /// The header with the operator's credential, if the upstream asks for one.
    pub credential: Option<(&'static str, String)>,
    /// The whole body.
    pub body: Bytes,
}

/// Rewrites the customer's `body` for `target`: only the bytes of the fields that must change.
/// `None` when this build has no codec for the target.
#[must_use]
pub fn rewrite(admitted: &Admitted, target: &Target, body: &Bytes) -> Option<UpstreamRequest> {
    let codec = codec_for(admitted.resolved.operation, target)?;
    let upstream = &target.upstream;
    let credential = upstream.credential.as_ref();
    Some(UpstreamRequest {
        path: format!("{}{}", upstream.path_prefix, codec.path()),
        authority: upstream.authority.clone(),
        credential: credential.map(|secret| upstream.dialect.credential_header(secret.expose())),
        body: admitted.call.splice(&target.model).apply(body),
    })
}
