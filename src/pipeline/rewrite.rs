//! What goes to a target.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::balance::{Candidate, Channel};
use crate::config::snapshot::{CredentialKind, PassedHeaders, Target, UpstreamHeader};
use crate::credentials::{Token, UnsignedRequest};
use crate::pipeline::Admitted;
use crate::protocols::json::Object;
use crate::protocols::query;
use crate::protocols::splice::{EditedBody, Splice};
use crate::protocols::{Codec, Collected, Content, Dialect, Fault, Framing, PathVariables};

/// What the gateway adds to every stream, to learn what was used.
const STREAM_OPTIONS: &str = "stream_options";

/// A request as one target gets it.
#[derive(Clone, Debug)]
pub struct UpstreamRequest {
    /// The dialect that the upstream speaks.
    pub dialect: Dialect,
    /// The upstream's prefix and the protocol's own path; behind it the parameters of the customer's query
    /// that the protocol lists.
    pub path: String,
    /// The value of the `Host` header.
    pub authority: String,
    /// The header with the operator's credential, if the upstream asks for one.
    pub credential: Option<(&'static str, String)>,
    /// The headers that a signature in that one needs beside it.
    pub signed: Vec<(&'static str, String)>,
    /// Headers that the upstream needs, and that customers of its dialect send themselves.
    pub headers: &'static [(&'static str, &'static str)],
    /// Headers of the operator's own, in the place of any other of the same name.
    pub own_headers: Arc<[UpstreamHeader]>,
    /// The body to send.
    pub body: EditedBody,
    /// Whether that is a form; else it is JSON, whatever the customer calls it.
    pub is_form: bool,
    /// The customer's headers that it takes beside those that every upstream takes.
    pub pass_headers: Arc<PassedHeaders>,
    /// Fields that the upstream refuses, and betas, which the request goes without.
    pub left_out: Vec<String>,
}

/// Rewrites the customer's `body` for a target: only the bytes of the fields that must change.
/// `None` when the request is not read as the target's protocol reads it.
#[must_use]
pub fn rewrite(
    admitted: &Admitted,
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

/// The codec of the target, if the request is read with it.
fn codec_for(admitted: &Admitted, candidate: &Candidate) -> Option<&'static dyn Codec> {
    let dialect = candidate.target.upstream.dialect;
    admitted.is_for(candidate.rank.model, dialect).then_some(admitted.codec)
}

/// Where the target is asked, below its upstream's prefix; `None` where it has no path for the request.
fn path(
    admitted: &Admitted,
    candidate: &Candidate,
    codec: &dyn Codec,
) -> Option<Cow<'static, str>> {
    let upstream = &candidate.target.upstream;
    let model = admitted.resolved.name_at(&candidate.target);
    let streams = admitted.call.streams();
    let path = codec.path_to(&PathVariables { dialect: upstream.dialect, model, streams })?;
    upstream.path_for(path, model)
}

/// The requests to a target for a call whose answer is put together from theirs. Where other targets
/// need that, and this one would be asked once, it is.
#[must_use]
pub fn rewrite_collected(
    admitted: &Admitted,
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

/// Puts the answers to [`rewrite_collected`] together.
///
/// # Errors
/// What an upstream said instead of answering, with a good status.
pub fn read_collected(admitted: &Admitted, answers: &[Bytes]) -> Result<Collected, Fault> {
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
        return Err(Fault::Upstreams("the upstream's answer is not whole".to_owned()));
    }
    let (usage, source) = meter.measure();
    Ok(Collected { usage, source, content: Content::Json(whole.freeze()) })
}

/// The request to a target that submits a task.
#[must_use]
pub fn rewrite_submit(
    admitted: &Admitted,
    candidate: &Candidate,
    body: &Bytes,
) -> Option<UpstreamRequest> {
    let target = &candidate.target;
    let codec = codec_for(admitted, candidate)?;
    let body = admitted.call.submit()?.body(admitted.resolved.name_at(target), body);
    let path = path(admitted, candidate, codec)?;
    UpstreamRequest::new(candidate, codec, &path, body.into())
}

/// A target over one of its channels.
#[derive(Clone, Copy)]
pub(super) struct WayTo<'a> {
    pub(super) target: &'a Target,
    pub(super) channel: &'a Channel,
    /// The token with which the gateway has signed in there, where it does.
    pub(super) token: Option<&'a Token>,
}

impl UpstreamRequest {
    /// `None` where the gateway signs in to the upstream and has not.
    fn new(candidate: &Candidate, codec: &dyn Codec, path: &str, body: EditedBody) -> Option<Self> {
        let Candidate { target, channel, token, .. } = candidate;
        Self::to(WayTo { target, channel, token: token.as_ref() }, codec, path, body)
    }

    /// The request to a target over one of its channels; `None` where the gateway signs in to the
    /// upstream and has no token.
    pub(super) fn to(
        way: WayTo<'_>,
        codec: &dyn Codec,
        path: &str,
        body: EditedBody,
    ) -> Option<Self> {
        let WayTo { target, channel, token } = way;
        let upstream = &target.upstream;
        let path = [upstream.path_prefix.as_str(), path].concat();
        let (credential, signed) = match channel.credential.as_ref().map(|one| &one.kind) {
            None => (None, Vec::new()),
            Some(CredentialKind::Key(key)) => (Some(upstream.key_header(key.expose())), Vec::new()),
            Some(CredentialKind::Auth(_)) => {
                let (authority, body) = (upstream.authority.as_str(), body.pieces());
                let unsigned = UnsignedRequest { method: "POST", authority, path: &path, body };
                let headers = token?.headers(&unsigned);
                (Some(("authorization", headers.authorization)), headers.more)
            }
        };
        Some(Self {
            dialect: upstream.dialect,
            path,
            authority: upstream.authority.clone(),
            credential,
            signed,
            headers: codec.headers(),
            own_headers: Arc::clone(&upstream.headers),
            body,
            is_form: codec.operation().takes_form(),
            pass_headers: Arc::clone(&target.pass_headers),
            left_out: Vec::new(),
        })
    }

    /// Takes top-level `fields` out of the body. Of those that the gateway puts in itself nobody is told.
    fn without(self, fields: &[String]) -> Self {
        if fields.is_empty() || self.is_form {
            return self;
        }
        let body = self.body.into_whole();
        let Ok(object) = Object::parse(&body) else { return Self { body: body.into(), ..self } };
        let found: Vec<&str> =
            fields.iter().map(String::as_str).filter(|field| object.get(field).is_some()).collect();
        let mut splice = Splice::default();
        for range in object.member_ranges(&found) {
            splice.replace(range, "");
        }
        let told = found.into_iter().filter(|field| *field != STREAM_OPTIONS);
        let left_out = told.map(str::to_owned).collect();
        Self { body: splice.apply_in_pieces(&body), left_out, ..self }
    }
}
