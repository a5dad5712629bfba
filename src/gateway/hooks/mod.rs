//! The implementation of [`ProxyHttp`]: one file a filter, in the order in which a request meets them.
//!
//! | Filter | What |
//! |---|---|
//! | `early_request_filter` | route; time limits until a key was shown |
//! | `request_filter` | authenticate, admit, read the body, hold the money; then `call` drives the rest |
//! | `upstream_peer` | choose the target |
//! | `request_body_filter` | rewrite the body for it |
//! | `upstream_request_filter` | headers and credentials of the provider |
//! | `upstream_response_filter` | the failure that the response head reports |
//! | `response_filter` | status and headers of the client; wait for the durable hold |
//! | `response_body_filter` | relay and meter |
//! | `fail_to_proxy` | errors, and error events in a response that has begun |
//! | `logging` | settle; metrics and access log |

mod early_request_filter;
mod request_filter;
mod upstream_peer;
mod request_body_filter;
mod upstream_request_filter;
mod upstream_response_filter;
mod response_filter;
mod response_body_filter;
mod fail_to_proxy;
mod logging;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use pingora::http::RequestHeader;
use pingora::modules::http::HttpModules;
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};

use crate::balance::Candidate;
use crate::clock::UnixMs;
use crate::gateway::answer::respond;
use crate::gateway::listen::connection::Connections;
use crate::gateway::listen::transport::Transport;
use crate::gateway::request::context::{RequestContext, RequestServices};
use crate::gateway::request::failure::CallFailure;
use crate::gateway::request::filters::UpstreamFilters;
use crate::gateway::request::sending::Sending;
use crate::gateway::request::services::Gateway;
use crate::gateway::upstream::connectors::NO_ROOTS;
use crate::gateway::upstream::request_head::RequestHead;
use crate::gateway::wire::head::AnswerHead;
use crate::ledger::RequestId;
use crate::pipeline::{self, AdmittedRequest, UpstreamRequest};

impl Gateway {
    /// The gateway behind a listener. `h2c` says whether HTTP/2 is spoken without TLS.
    #[must_use]
    pub fn behind(self, transport: Transport, h2c: bool) -> Connections<Self> {
        let conf = server_conf();
        let (deadline, open) = (Arc::clone(&self.deadline), Arc::clone(&self.open));
        let ledger = Arc::clone(&self.ledger);
        // A look-up only: the stream is authenticated again in its own request, with the right error.
        let is_authenticated = Arc::new(move |header: &RequestHeader| {
            pipeline::authenticate(&ledger, &header.headers, None, UnixMs::now()).is_ok()
        });
        Connections::new(&Arc::new(conf), self, transport, h2c, respond::refusal, open)
            .tied_to(deadline, is_authenticated)
    }
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = RequestContext;

    fn new_ctx(&self) -> RequestContext {
        self.metrics.in_flight_begin();
        let (metrics, deadline) = (Arc::clone(&self.metrics), Arc::clone(&self.deadline));
        let (ledger, requests) = (Arc::clone(&self.ledger), Arc::clone(&self.requests));
        let services = RequestServices { metrics, ledger, requests, deadline };
        RequestContext::new(self.config.load(), services)
    }

    /// Disables Pingora's default modules: compression does not fit streams that are metered.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn early_request_filter(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<()> {
        early_request_filter::filter(self, session, ctx)
    }

    /// Always true: `call` asks upstreams from within this filter, so that a response is read on for its
    /// usage when the client has disconnected. It drives the [`UpstreamFilters`] in Pingora's order.
    async fn request_filter(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<bool> {
        request_filter::filter(self, session, ctx).await
    }

    /// Never called, as Pingora's own loop is not used: see [`UpstreamFilters::upstream_peer`].
    async fn upstream_peer(
        &self,
        _: &mut Session,
        _: &mut RequestContext,
    ) -> Result<Box<HttpPeer>> {
        Err(Error::explain(ErrorType::InternalError, "Pingora's own loop is not used"))
    }

    fn response_body_filter(
        &self,
        _: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut RequestContext,
    ) -> Result<Option<Duration>> {
        response_body_filter::filter(body, end_of_stream, ctx).map(|()| None)
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut RequestContext,
    ) -> FailToProxy {
        fail_to_proxy::fail(session, error, ctx).await
    }

    async fn logging(
        &self,
        session: &mut Session,
        error: Option<&Error>,
        ctx: &mut RequestContext,
    ) {
        logging::log(session, error, ctx).await;
    }

    /// Failures are in the access log, with the request's id.
    fn suppress_error_log(&self, _: &Session, _: &RequestContext, _: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _: &Session,
        _: &RequestContext,
        _: &Error,
        _: ProxyWarnLogContext,
    ) -> bool {
        true
    }
}

/// Filters with types of the gateway's own, in Pingora's order.
impl UpstreamFilters for Gateway {
    async fn upstream_peer(&self, ctx: &mut RequestContext) -> Result<Candidate> {
        upstream_peer::choose(self, ctx).await
    }

    async fn request_body_filter<T: Send>(
        &self,
        sending: &Sending,
        rewrite: impl FnOnce(&AdmittedRequest, &Bytes) -> Option<T> + Send,
    ) -> Option<T> {
        request_body_filter::filter(self, sending, rewrite).await
    }

    fn upstream_request_filter<H: RequestHead>(
        &self,
        downstream: &HeaderMap,
        request: &mut UpstreamRequest,
        id: RequestId,
        body_bytes: usize,
    ) -> Result<H> {
        upstream_request_filter::filter(downstream, request, id, body_bytes)
    }

    fn upstream_response_filter(
        &self,
        head: &AnswerHead,
        ctx: &mut RequestContext,
    ) -> Option<CallFailure> {
        upstream_response_filter::filter(head, ctx)
    }

    async fn response_filter(
        &self,
        head: Option<&mut AnswerHead>,
        ctx: &mut RequestContext,
    ) -> Result<()> {
        match head {
            Some(head) => response_filter::filter(head, ctx).await,
            None => response_filter::durable(ctx).await,
        }
    }

    async fn uncovered_body_filter(&self, ctx: &mut RequestContext) -> Result<(Bytes, bool)> {
        response_body_filter::covered(ctx).await
    }

    async fn fail_downstream(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut RequestContext,
    ) -> FailToProxy {
        fail_to_proxy::answer(session, error, ctx).await
    }
}

/// Configuration of Pingora. Root certificates are for its own loop over upstreams, which is not used.
fn server_conf() -> ServerConf {
    ServerConf { ca_file: Some(NO_ROOTS.to_owned()), ..ServerConf::default() }
}
