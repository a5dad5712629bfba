//! Rewriting of a request for a target.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};

use crate::{AdmittedRequest, UpstreamRequest};
use tollgate_balance::Candidate;
use tollgate_protocols::query;
use tollgate_protocols::splice::EditedBody;
use tollgate_protocols::{
    Codec, CollectedAnswer, CollectedContent, Framing, PathVariables, UpstreamFault,
};

/// Rewrite the customer's `body` for a target, changing only the bytes of fields that must change.
/// `None` if the current reading is not for the target's protocol.
#[must_use]
pub fn rewrite(
    admitted: &AdmittedRequest,
    candidate: &Candidate,
    query: Option<&str>,
    body: &Bytes,
) -> Option<UpstreamRequest> {
    let target = &candidate.target;
    let codec = codec_for(admitted, candidate)?;
    let splice = admitted.call.splice(admitted.resolved.name_at(target));
    let query = query.and_then(|query| query::retain(query, codec.query_parameters()));
    let mut path = path(admitted, candidate, codec)?;
    if let Some(query) = query {
        let mark = if path.contains('?') { '&' } else { '?' };
        path = format!("{path}{mark}{query}").into();
    }
    let request = UpstreamRequest::new(candidate, codec, &path, splice.apply_in_pieces(body))?;
    Some(request.without(&target.upstream.leave_out_fields))
}

/// Codec of the target, if the current reading uses it.
fn codec_for(admitted: &AdmittedRequest, candidate: &Candidate) -> Option<&'static dyn Codec> {
    let dialect = candidate.target.upstream.dialect;
    admitted.is_for(candidate.rank.model, dialect).then_some(admitted.codec)
}

/// Path below the upstream's prefix; `None` if the target has none for the request.
fn path(
    admitted: &AdmittedRequest,
    candidate: &Candidate,
    codec: &dyn Codec,
) -> Option<Cow<'static, str>> {
    let upstream = &candidate.target.upstream;
    let model = admitted.resolved.name_at(&candidate.target);
    let streams = admitted.call.streams();
    let path = codec.path_to(&PathVariables { dialect: upstream.dialect, model, streams })?;
    upstream.path_for(path, model)
}

/// Build the upstream requests of a call whose answer is collected from several. A single request if
/// only other targets need collecting.
#[must_use]
pub fn rewrite_collected(
    admitted: &AdmittedRequest,
    candidate: &Candidate,
    body: &Bytes,
) -> Option<Vec<UpstreamRequest>> {
    let codec = codec_for(admitted, candidate)?;
    let name = admitted.resolved.name_at(&candidate.target);
    let bodies = match admitted.call.collected() {
        Some(call) => call.bodies(name, body).into_iter().map(EditedBody::from).collect(),
        None => vec![admitted.call.splice(name).apply(body).into()],
    };
    let path = path(admitted, candidate, codec)?;
    let request = |body| UpstreamRequest::new(candidate, codec, &path, body);
    bodies.into_iter().map(request).collect()
}

/// Combine the answers to [`rewrite_collected`].
///
/// # Errors
/// The error that an upstream returned with a success status.
pub fn read_collected(
    admitted: &AdmittedRequest,
    answers: &[Bytes],
) -> Result<CollectedAnswer, UpstreamFault> {
    if let Some(call) = admitted.call.collected() {
        return call.read(answers);
    }
    let mut meter = admitted.call.meter(Framing::Json);
    let mut whole = BytesMut::new();
    for answer in answers {
        whole.extend_from_slice(&meter.relay(answer.clone()));
    }
    whole.extend_from_slice(&meter.finish());
    if meter.has_failed() || !meter.is_complete() {
        return Err(UpstreamFault::Upstreams("the upstream's answer is not whole".to_owned()));
    }
    let (usage, source) = meter.measure();
    Ok(CollectedAnswer { usage, source, content: CollectedContent::Json(whole.freeze()) })
}

/// Build the upstream request that submits a task.
#[must_use]
pub fn rewrite_submit(
    admitted: &AdmittedRequest,
    candidate: &Candidate,
    body: &Bytes,
) -> Option<UpstreamRequest> {
    let target = &candidate.target;
    let codec = codec_for(admitted, candidate)?;
    let body = admitted.call.submit()?.body(admitted.resolved.name_at(target), body);
    let path = path(admitted, candidate, codec)?;
    UpstreamRequest::new(candidate, codec, &path, body.into())
}
