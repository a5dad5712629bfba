//! The filters of [`ProxyHttp`](pingora_proxy::ProxyHttp) whose types do not fit the gateway's own sessions and
//! calls: the same names, order and purpose, with the types of `wire` and `upstream`.
//!
//! Pingora's versions take a head with a map of headers and return a boxed future. The gateway's heads are lists,
//! and a chat makes no future of its own for a filter: `docs/adr/0095-named-filters.md` has the figures. `call`
//! drives these filters for every delivery, in the order in which Pingora's loop over upstreams would.

use bytes::Bytes;
use http::HeaderMap;
use pingora::{Error, Result};
use pingora_proxy::{FailToProxy, Session};

use crate::balance::Candidate;
use crate::gateway::request::context::RequestContext;
use crate::gateway::request::failure::CallFailure;
use crate::gateway::request::sending::Sending;
use crate::gateway::upstream::request_head::RequestHead;
use crate::gateway::wire::head::AnswerHead;
use crate::ledger::RequestId;
use crate::pipeline::{AdmittedRequest, UpstreamRequest};

/// Filters between the hold and the settlement of a request.
pub(crate) trait UpstreamFilters {
    /// Chooses the next target, and takes what a call to it needs: a slot for free calls, a token.
    ///
    /// # Errors
    /// No target is left, or the request ends here.
    fn upstream_peer(
        &self,
        ctx: &mut RequestContext,
    ) -> impl Future<Output = Result<Candidate>> + Send;

    /// Rewrites the request body for the target, a large one off the event loop. `None` if the target's
    /// protocol cannot express the request.
    fn request_body_filter<T: Send>(
        &self,
        sending: &Sending,
        rewrite: impl FnOnce(&AdmittedRequest, &Bytes) -> Option<T> + Send,
    ) -> impl Future<Output = Option<T>> + Send;

    /// Builds the head of the request to the upstream: headers of the client that may pass, and the
    /// provider's credentials. `body_bytes` is the room for a body behind a head that is written out.
    ///
    /// # Errors
    /// A configured value cannot stand in a head.
    fn upstream_request_filter<H: RequestHead>(
        &self,
        downstream: &HeaderMap,
        request: &mut UpstreamRequest,
        id: RequestId,
        body_bytes: usize,
    ) -> Result<H>;

    /// Classifies an upstream's response head before any of it reaches the client: the failure that it
    /// reports, or `None` if it can be relayed.
    fn upstream_response_filter(
        &self,
        head: &AnswerHead,
        ctx: &mut RequestContext,
    ) -> Option<CallFailure>;

    /// Turns the upstream's response head into the client's. A successful response waits here until the
    /// hold that pays for it is on disk. `None` for a response whose head the gateway writes itself.
    ///
    /// # Errors
    /// The hold could not be written.
    fn response_filter(
        &self,
        head: Option<&mut AnswerHead>,
        ctx: &mut RequestContext,
    ) -> impl Future<Output = Result<()>> + Send;

    /// The piece of a response body that `response_body_filter` has kept until a durable hold pays for it,
    /// and true if it is the last.
    ///
    /// # Errors
    /// The ledger closed before the hold was on disk.
    fn uncovered_body_filter(
        &self,
        ctx: &mut RequestContext,
    ) -> impl Future<Output = Result<(Bytes, bool)>> + Send;

    /// Answers the client with an error while the upstream's response is still read for its usage:
    /// `fail_to_proxy` before the end of the request.
    fn fail_downstream(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut RequestContext,
    ) -> impl Future<Output = FailToProxy> + Send;
}
