//! What goes to a target.

use bytes::Bytes;

use crate::balance::Candidate;
use crate::pipeline::Admitted;
use crate::pipeline::resolve::codec_for;

/// A request as one target gets it.
#[derive(Clone, Debug)]
pub struct UpstreamRequest {
    /// The upstream's prefix and the protocol's own path; behind it the customer's query, where the
    /// protocol has a use for it.
    pub path: String,
    /// The `Host` header.
    pub authority: String,
    /// The header with the operator's credential, if the upstream asks for one.
    pub credential: Option<(&'static str, String)>,
    /// The whole body.
    pub body: Bytes,
}

/// Rewrites the customer's `body` for a target: only the bytes of the fields that must change.
/// `None` when this build has no codec for the target.
#[must_use]
pub fn rewrite(
    admitted: &Admitted,
    candidate: &Candidate,
    query: Option<&str>,
    body: &Bytes,
) -> Option<UpstreamRequest> {
    let target = &candidate.target;
    let codec = codec_for(admitted.resolved.operation, target)?;
    let body = admitted.call.splice(admitted.resolved.name_at(target)).apply(body);
    let query = query.filter(|_| codec.forwards_query());
    let (mark, query) = query.map_or(("", ""), |query| ("?", query));
    let path = format!("{}{mark}{query}", codec.path());
    Some(UpstreamRequest::new(candidate, &path, body))
}

/// The requests to a target for a call whose answer is put together from theirs.
#[must_use]
pub fn rewrite_collected(
    admitted: &Admitted,
    candidate: &Candidate,
    body: &Bytes,
) -> Option<Vec<UpstreamRequest>> {
    let target = &candidate.target;
    let codec = codec_for(admitted.resolved.operation, target)?;
    let bodies = admitted.call.collected()?.bodies(admitted.resolved.name_at(target), body);
    let request = |body| UpstreamRequest::new(candidate, codec.path(), body);
    Some(bodies.into_iter().map(request).collect())
}

/// The request to a target that submits a task.
#[must_use]
pub fn rewrite_submit(
    admitted: &Admitted,
    candidate: &Candidate,
    body: &Bytes,
) -> Option<UpstreamRequest> {
    let target = &candidate.target;
    let codec = codec_for(admitted.resolved.operation, target)?;
    let body = admitted.call.submit()?.body(admitted.resolved.name_at(target), body);
    Some(UpstreamRequest::new(candidate, codec.path(), body))
}

impl UpstreamRequest {
    fn new(candidate: &Candidate, path: &str, body: Bytes) -> Self {
        let upstream = &candidate.target.upstream;
        let credential = candidate.channel.credential.as_ref();
        Self {
            path: format!("{}{path}", upstream.path_prefix),
            authority: upstream.authority.clone(),
            credential: credential
                .map(|one| upstream.dialect.credential_header(one.secret.expose())),
            body,
        }
    }
}
