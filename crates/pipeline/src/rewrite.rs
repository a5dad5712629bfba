//! Rewriting of a request for a target.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::Admitted;
use tollgate_balance::{Candidate, Channel};
use tollgate_config::snapshot::{CredentialKind, PassedHeaders, Target, UpstreamHeader};
use tollgate_credentials::{Token, UnsignedRequest};
use tollgate_protocols::json::Object;
use tollgate_protocols::query;
use tollgate_protocols::splice::{EditedBody, Splice};
use tollgate_protocols::{Codec, Collected, Content, Dialect, Fault, Framing, PathVariables};

/// Field that the gateway adds to every stream to get its usage.
const STREAM_OPTIONS: &str = "stream_options";

/// An upstream request for one target.
#[derive(Clone, Debug)]
pub struct UpstreamRequest {
    /// Dialect of the upstream.
    pub dialect: Dialect,
    /// Upstream's prefix, the protocol's path, and the customer's query parameters that the protocol
    /// allows.
    pub path: String,
    /// Value of the `Host` header.
    pub authority: String,
    /// Header with the operator's credential, if any.
    pub credential: Option<(&'static str, String)>,
    /// Further headers of a signed request.
    pub signed: Vec<(&'static str, String)>,
    /// Headers that the dialect requires.
    pub headers: &'static [(&'static str, &'static str)],
    /// Headers from the configuration, which replace others of the same name.
    pub own_headers: Arc<[UpstreamHeader]>,
    /// Body of the request in pieces.
    pub body: EditedBody,
    /// True for a multipart form; otherwise JSON, whatever the customer's content type.
    pub is_form: bool,
    /// Customer headers that this target accepts beside the general ones.
    pub pass_headers: Arc<PassedHeaders>,
    /// Fields and beta flags removed because the upstream rejects them.
    pub left_out: Vec<String>,
}

/// Rewrite the customer's `body` for a target, changing only the bytes of fields that must change.
/// `None` if the current reading is not for the target's protocol.
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

/// Codec of the target, if the current reading uses it.
fn codec_for(admitted: &Admitted, candidate: &Candidate) -> Option<&'static dyn Codec> {
    let dialect = candidate.target.upstream.dialect;
    admitted.is_for(candidate.rank.model, dialect).then_some(admitted.codec)
}

/// Path below the upstream's prefix; `None` if the target has none for the request.
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

/// Build the upstream requests of a call whose answer is collected from several. A single request if
/// only other targets need collecting.
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

/// Combine the answers to [`rewrite_collected`].
///
/// # Errors
/// The error that an upstream returned with a success status.
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

/// Build the upstream request that submits a task.
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

/// A target with one of its channels.
#[derive(Clone, Copy)]
pub(super) struct ChannelTarget<'a> {
    pub(super) target: &'a Target,
    pub(super) channel: &'a Channel,
    /// Token, if the gateway signs in to the upstream.
    pub(super) token: Option<&'a Token>,
}

impl UpstreamRequest {
    /// `None` if the gateway must sign in to the upstream and has no token.
    fn new(candidate: &Candidate, codec: &dyn Codec, path: &str, body: EditedBody) -> Option<Self> {
        let Candidate { target, channel, token, .. } = candidate;
        Self::to(ChannelTarget { target, channel, token: token.as_ref() }, codec, path, body)
    }

    /// Build the request to a target over one of its channels; `None` if the gateway must sign in to the
    /// upstream and has no token.
    pub(super) fn to(
        channel_target: ChannelTarget<'_>,
        codec: &dyn Codec,
        path: &str,
        body: EditedBody,
    ) -> Option<Self> {
        let ChannelTarget { target, channel, token } = channel_target;
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

    /// Remove top-level `fields` from the body. Fields that the gateway added itself are not reported.
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
        let reported = found.into_iter().filter(|field| *field != STREAM_OPTIONS);
        let left_out = reported.map(str::to_owned).collect();
        Self { body: splice.apply_in_pieces(&body), left_out, ..self }
    }
}
