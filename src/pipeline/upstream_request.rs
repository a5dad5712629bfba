//! A request as it goes to an upstream: path, credential, headers and body.

use std::sync::Arc;

use crate::balance::{Candidate, Channel};
use crate::config::snapshot::{CredentialKind, PassedHeaders, Target, UpstreamHeader};
use crate::credentials::{Token, UnsignedRequest};
use crate::protocols::json::Object;
use crate::protocols::splice::{EditedBody, Splice};
use crate::protocols::{Codec, Dialect};

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
    pub(super) fn new(
        candidate: &Candidate,
        codec: &dyn Codec,
        path: &str,
        body: EditedBody,
    ) -> Option<Self> {
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
    pub(super) fn without(self, fields: &[String]) -> Self {
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
