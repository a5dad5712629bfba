//! The end of a request: its money, its metrics, its line in the access log.

use std::net::IpAddr;
use std::time::Instant;

use pingora::proxy::Session;
use pingora::{Error, ErrorSource};

use super::exchange::{Cut, Exchange, Stage};
use super::{client, inward, respond};
use crate::balance::Outcome;
use crate::error::GatewayError;
use crate::finished::{self, Finished};
use crate::pipeline::{Bill, Ending};

impl Exchange {
    /// Settles the bill and tells metrics and log, once.
    pub(super) fn finish(&mut self, session: &Session, bill: Bill) {
        if let Stage::Relaying(response) = &mut self.stage
            && response.relaying.is_complete()
        {
            let failed = response.relaying.has_failed();
            let outcome = if failed { Outcome::Failed } else { Outcome::Ok };
            response.candidate.report(outcome, Instant::now());
        }
        let paid = self.is_paid();
        let upstream = self.upstream_name().to_owned();
        let settled = self.settle(bill);
        let settled = paid.then_some(finished::Settled {
            usage: settled.usage,
            source: settled.source,
            cost: settled.charged,
        });
        if let Some(settled) = settled {
            inward::tell(session.req_header(), settled);
        }
        let head = session.req_header();
        let written = session.response_written().map(|header| header.status.as_u16());
        let refused = written.filter(|status| *status >= 400 && self.route.is_some());
        let refused = refused.map(|_| "upstream_refused");
        let code = |failure: &GatewayError| failure.code.unwrap_or(respond::wire(failure.kind).2);
        let failure = self.failure.as_ref().map(code);
        if let Some(failure) = self.failure.as_ref().filter(|failure| failure.cause.is_some()) {
            log::warn!("request {}: {failure}", self.id);
        }
        let model = self.model.as_ref().map_or("", |model| &model.id);
        if let Some(limited) = self.failure.as_ref().and_then(|failure| failure.limited.as_ref()) {
            self.metrics.rate_limited(model, limited.limit, limited.scope);
        }
        Finished {
            request_id: self.id,
            account_id: self.key.as_ref().map(|key| key.account),
            key_id: self.key.as_ref().map(|key| key.id),
            client: self.client(session),
            method: head.method.as_str(),
            route: self.route.as_ref().map_or(self.local_route, |route| &route.path),
            operation: self.route.as_ref().map(|route| route.operation),
            model,
            upstream: &upstream,
            status: written.unwrap_or(0),
            error_code: failure.or(refused).unwrap_or_default(),
            streamed: self.stream,
            bytes_in: self.request_bytes,
            bytes_out: session.body_bytes_sent() as u64,
            duration: self.started.elapsed(),
            ttfb: self.first_byte,
            settled,
            task_id: self.task,
            traceparent: head.headers.get("traceparent").and_then(|value| value.to_str().ok()),
        }
        .report(&self.metrics, &self.requests, &self.snapshot.access_log);
    }

    /// Whose request it is; `None` when the socket was gone before it was asked.
    fn client(&self, session: &Session) -> Option<IpAddr> {
        let peer = session.client_addr()?.as_inet()?.ip();
        let headers = &session.req_header().headers;
        Some(client::address(peer, headers, &self.snapshot.trusted_proxies))
    }

    /// How the request ended, as far as money is concerned.
    pub(super) fn ending(&self, session: &Session, error: Option<&Error>) -> Ending {
        let refused =
            session.response_written().is_some_and(|header| header.status.as_u16() >= 300);
        let gone = error.is_some_and(|error| *error.esource() == ErrorSource::Downstream)
            && !self.deadline.is_over();
        match &self.stage {
            Stage::Relaying(response) if response.cut.is_some_and(|cut| cut != Cut::Stopping) => {
                Ending::Exhausted
            }
            Stage::Relaying(_) if gone => Ending::ClientGone,
            Stage::Relaying(response) if response.relaying.is_complete() => Ending::Complete,
            // The upstream has the request, and charges what it has begun.
            Stage::Sending(sending)
                if gone
                    && !refused
                    && sending.attempt.as_ref().is_some_and(|attempt| attempt.body_emitted) =>
            {
                Ending::ClientGone
            }
            _ => Ending::UpstreamFailed,
        }
    }
}

/// A request whose task was dropped, as when the drain's deadline cuts it, is settled all the same:
/// for what had reached the customer.
impl Drop for Exchange {
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Sending(_) | Stage::Relaying(_)) {
            let bill = self.bill(Ending::UpstreamFailed);
            self.settle(bill);
        }
        self.metrics.in_flight_end();
    }
}
