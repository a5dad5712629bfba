//! One request that the gateway makes itself, over the connections that relayed requests take: answers
//! that are put together, and tasks that are submitted.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use pingora::{Error, ErrorType};
use tollgate_outbound::{DialError, certificate_refusal};

use crate::balance::Channel;
use crate::config::snapshot::Upstream;
use crate::gateway::request::services::Gateway;
use crate::gateway::upstream::client::{UpstreamCall, UpstreamPool};
use crate::gateway::upstream::request_head;
use crate::gateway::wire::error::describe_error;
use crate::outbound::OutboundError;
use crate::protocols::splice::EditedBody;

/// Reuse of pooled connections for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionReuse {
    /// Reuse an idle connection if there is one. The request is sent again, once, if the upstream had closed
    /// it before the request arrived.
    Allowed,
    /// A new one. What must never be sent twice runs into no connection that is being closed.
    Never,
}

/// Client for requests that the gateway makes itself.
pub(crate) struct Poster<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) upstream: &'a Arc<Upstream>,
    /// The channel whose quota the answer reports; `None` for calls outside of quotas.
    pub(crate) channel: Option<&'a Channel>,
    pub(crate) reuse: ConnectionReuse,
}

/// An answer whose body is still to come.
pub(crate) struct PostAnswer<'a> {
    upstreams: &'a UpstreamPool,
    call: Box<UpstreamCall>,
    status: u16,
    headers: HeaderMap,
}

impl<'a> Poster<'a> {
    /// Sends a request with these headers, and waits for the head of its answer.
    ///
    /// # Errors
    /// See [`OutboundError`].
    pub(crate) async fn post(
        &self,
        path: &str,
        fields: &HeaderMap,
        body: impl Into<EditedBody>,
    ) -> Result<PostAnswer<'a>, OutboundError> {
        let body = body.into();
        let joined = UpstreamCall::joined_bytes(&body);
        let head =
            request_head::write_fields(path, fields, joined).map_err(|error| broken(&error))?;
        let is_new = self.reuse == ConnectionReuse::Never;
        let (call, error) = match self.ask(head.clone(), &body, is_new).await? {
            Ok(answer) => return Ok(answer),
            Err(failed) => failed,
        };
        if is_new || !(call.is_reused() && call.has_not_begun()) {
            return Err(self.unanswered(&error));
        }
        drop(call);
        self.gateway.metrics.reconnected(&self.upstream.name);
        match self.ask(head, &body, true).await? {
            Ok(answer) => Ok(answer),
            Err((_, error)) => Err(self.unanswered(&error)),
        }
    }

    /// Counts a failed connection, and gives its error.
    fn unreachable(&self, error: DialError) -> OutboundError {
        self.gateway.metrics.connect_failed(&self.upstream.name, &error);
        OutboundError::Unreachable(error)
    }

    /// The error of a call without an answer. A server that refuses the client certificate has read nothing.
    fn unanswered(&self, error: &Error) -> OutboundError {
        match certificate_refusal(&self.upstream.authority, error.root_cause()) {
            Some(refused) => self.unreachable(refused),
            None => unanswered(error),
        }
    }

    /// The answer, or the call that has none and why. The error outside is that of a connection that did
    /// not come about.
    async fn ask(
        &self,
        head: BytesMut,
        body: &EditedBody,
        is_new: bool,
    ) -> Result<Result<PostAnswer<'a>, (Box<UpstreamCall>, Box<Error>)>, OutboundError> {
        let (gateway, upstream) = (self.gateway, self.upstream);
        let connected = gateway.upstreams.connect(upstream, is_new).await;
        let mut call = connected.map_err(|error| self.unreachable(error))?;
        if let Err(error) = call.send(head, body).await {
            return Ok(Err((call, error)));
        }
        let head = match call.head().await {
            Ok(head) => head,
            Err(error) => return Ok(Err((call, error))),
        };
        if let (Some(channel), Some(report)) = (self.channel, call.quota()) {
            channel.note_quota(report, Instant::now());
        }
        let (status, headers) = (head.status.as_u16(), head.headers.into());
        Ok(Ok(PostAnswer { upstreams: &gateway.upstreams, call, status, headers }))
    }
}

impl PostAnswer<'_> {
    /// The HTTP status of the answer.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// The headers of the answer.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Reads the whole body, as long as `may_grow` permits the size of each piece.
    ///
    /// # Errors
    /// When the body breaks off, a piece is not there in time, or `may_grow` refuses one.
    pub(crate) async fn whole(
        mut self,
        mut may_grow: impl FnMut(usize) -> bool,
    ) -> Result<Bytes, OutboundError> {
        let mut whole = BytesMut::new();
        while let Some(piece) = self.call.chunk().await.map_err(|error| unanswered(&error))? {
            if !may_grow(piece.len()) {
                return Err(OutboundError::TooLarge);
            }
            whole.extend_from_slice(&piece);
        }
        self.upstreams.release(self.call);
        Ok(whole.freeze())
    }

    /// Reads the whole body, if it has at most `bytes_max`.
    ///
    /// # Errors
    /// When the body breaks off, a piece is not there in time, or it is larger than `bytes_max`.
    pub(crate) async fn whole_within(self, bytes_max: usize) -> Result<Bytes, OutboundError> {
        let mut length: usize = 0;
        self.whole(|bytes| {
            length = length.saturating_add(bytes);
            length <= bytes_max
        })
        .await
    }
}

fn unanswered(error: &Error) -> OutboundError {
    match error.etype() {
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => OutboundError::TimedOut,
        _ => broken(error),
    }
}

fn broken(error: &Error) -> OutboundError {
    OutboundError::Broken(describe_error(error))
}
