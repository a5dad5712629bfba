//! The one [`ProxyHttp`]: every hook says what happens, in a few lines.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::http::RequestHeader;
use pingora::modules::http::HttpModules;
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};

use crate::clock::UnixMs;
use crate::gateway::answer::{relay, respond};
use crate::gateway::call;
use crate::gateway::dispatch::{self, Received};
use crate::gateway::listen::connection::Connections;
use crate::gateway::listen::http1;
use crate::gateway::listen::transport::Transport;
use crate::gateway::receive::admission;
use crate::gateway::request::context::Exchange;
use crate::gateway::request::services::Gateway;
use crate::gateway::upstream::connectors::NO_ROOTS;
use crate::gateway::wire::framing;
use crate::pipeline;

impl Gateway {
    /// The gateway behind a listener. `h2c` says whether HTTP/2 is spoken without TLS.
    #[must_use]
    pub fn behind(self, transport: Transport, h2c: bool) -> Connections<Self> {
        let conf = server_conf();
        let (deadline, open) = (Arc::clone(&self.deadline), Arc::clone(&self.open));
        let ledger = Arc::clone(&self.ledger);
        let is_authenticated = Arc::new(move |header: &RequestHeader| {
            pipeline::authenticate(&ledger, &header.headers, None, UnixMs::now()).is_ok()
        });
        Connections::new(&Arc::new(conf), self, transport, h2c, respond::refusal, open)
            .tied_to(deadline, is_authenticated)
    }
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Exchange;

    fn new_ctx(&self) -> Exchange {
        self.metrics.in_flight_begin();
        let (metrics, deadline) = (Arc::clone(&self.metrics), Arc::clone(&self.deadline));
        let (ledger, requests) = (Arc::clone(&self.ledger), Arc::clone(&self.requests));
        Exchange::new(self.config.load(), metrics, ledger, requests, deadline)
    }

    /// None: what Pingora would add, compression, is not for streams that are metered.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn early_request_filter(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<()> {
        exchange.route_to(session.req_header());
        if self.deadline.is_near() {
            http1::close_behind(session);
        }
        admission::hurry(session, exchange);
        match session.as_http2() {
            // The heads of HTTP/1.1 were checked before Pingora read them.
            None => Ok(()),
            Some(_) => framing::check_fields(&session.req_header().headers)
                .map_err(|error| self.refuse(session, exchange, error)),
        }
    }

    async fn request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<bool> {
        match dispatch::receive(self, session, exchange).await {
            Ok(Received::Answered) => Ok(true),
            Ok(Received::Paid) => call::answer(self, session, exchange).await.map(|()| true),
            Err(error) => Err(self.refuse(session, exchange, error)),
        }
    }

    /// Pingora never asks for one: `request_filter` answers every request, and asks upstreams itself.
    async fn upstream_peer(&self, _: &mut Session, _: &mut Exchange) -> Result<Box<HttpPeer>> {
        Err(Error::explain(ErrorType::InternalError, "Pingora's own loop is not used"))
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        exchange: &mut Exchange,
    ) -> FailToProxy {
        if exchange.orphan.is_some() {
            // Nobody listens, or the customer has been told.
            return FailToProxy { error_code: 0, can_reuse_downstream: false };
        }
        relay::fail(session, error, exchange).await
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, exchange: &mut Exchange) {
        let bill = exchange.bill(exchange.ending(error));
        exchange.cover(&bill).await;
        exchange.finish(session, bill);
    }

    /// Failures are in the access log, with the request's id.
    fn suppress_error_log(&self, _: &Session, _: &Exchange, _: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _: &Session,
        _: &Exchange,
        _: &Error,
        _: ProxyWarnLogContext,
    ) -> bool {
        true
    }
}

/// How Pingora is set up. It makes connections to upstreams for its own loop, which is not used: that
/// needs no root certificates.
fn server_conf() -> ServerConf {
    ServerConf { ca_file: Some(NO_ROOTS.to_owned()), ..ServerConf::default() }
}
