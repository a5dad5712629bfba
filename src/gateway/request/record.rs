//! The end of a request: its bill and settlement, its metrics, its line in the access log.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use http::HeaderMap;
use pingora::{Error, ErrorSource, ErrorType};
use pingora_proxy::Session;
use tollgate_telemetry::report::exports_spans;

use crate::balance::Outcome;
use crate::clock::UnixMs;
use crate::error::{ErrorKind, GatewayError};
use crate::finished::{self, FinishedRequest};
use crate::forwarded as client;
use crate::gateway::listen::loopback;
use crate::gateway::request::context::{RequestContext, RequestStage};
use crate::gateway::request::progress::Progress;
use crate::gateway::request::response::{CutReason, Response};
use crate::gateway::request::sending::{self, Attempt};
use crate::gateway::request::status;
use crate::ids::RequestId;
use crate::ledger::{CallCost, CostKind, Loss, LossCause};
use crate::money::Nanousd;
use crate::pipeline::{Bill, Ending, SettlementOutcome, TryCost};
use crate::price::Side;
use crate::protocols::Contradiction;

/// The longest of the methods that IANA lists has 17 letters.
const METHOD_BYTES_MAX: usize = 20;

impl RequestContext {
    /// Settles the bill, and records metrics and log, once.
    pub(crate) fn finish(&mut self, session: &Session, bill: Bill) {
        let now = Instant::now();
        if let RequestStage::Relaying(response) = &mut self.stage
            && response.relaying.is_complete()
        {
            let outcome = if bill.has_failed { Outcome::Failed } else { Outcome::Ok };
            response.candidate.report(outcome, now);
        }
        self.report_stale_limits();
        self.report_clamp();
        self.report_contradictions();
        // Before the settlement, which ends the stage that knows them.
        let (paid, clamped) = (self.is_paid(), self.clamped());
        let target = self.tried_target().cloned();
        let tried = self.tried_model().cloned();
        let settled = self.settle(bill);
        let amount_held = settled.held;
        let settled = paid.then_some(finished::RequestSettlement {
            usage: settled.usage,
            source: settled.source,
            cost: settled.charged,
            owed: settled.owed,
        });
        if let Some(settled) = settled {
            loopback::complete(session.req_header(), settled);
        }
        let head = session.req_header();
        let written = session.response_written().map(|header| header.status.as_u16());
        let refused = written.filter(|status| *status >= 400 && self.routing.route.is_some());
        let refused = refused.map(|_| "upstream_refused");
        let code = |failure: &GatewayError| failure.code.unwrap_or(status::wire(failure.kind).2);
        let failure = self.response.failure.as_ref().map(code);
        let model = tried.as_ref().map_or("", |model| &model.id);
        let requested = self.model.as_ref().map_or("", |model| &model.id);
        self.report_failure(requested);
        FinishedRequest {
            request_id: self.id,
            account_id: self.key.as_ref().map(|key| key.account),
            key_id: self.key.as_ref().map(|key| key.id),
            client: self.client(session),
            method: shortened(head.method.as_str()),
            route: self
                .routing
                .route
                .as_ref()
                .map_or(self.routing.local_route, |route| &route.path),
            operation: self.routing.route.as_ref().map(|route| route.operation),
            model,
            requested_model: Some(requested).filter(|requested| *requested != model),
            upstream: target.as_ref().map_or("", |target| &target.upstream.name),
            upstream_request_id: self.response.upstream_request_id.as_deref(),
            status: written.unwrap_or(0),
            error_code: failure.or(refused).unwrap_or_default(),
            streamed: self.stream,
            bytes_in: self.request_bytes,
            bytes_out: session.body_bytes_sent() as u64,
            ended_at: UnixMs::now(),
            duration: now.saturating_duration_since(self.started),
            ttfb: self.response.first_byte,
            settled,
            held: amount_held,
            max_tokens_clamped: clamped,
            task_id: self.response.task,
            traceparent: traceparent(&head.headers),
        }
        .report(&self.services.metrics, &self.services.requests, &self.snapshot.access_log);
    }

    /// Log the cause of a failure, and count the limit that refused the request.
    fn report_failure(&self, model: &str) {
        let Some(failure) = &self.response.failure else { return };
        if failure.cause.is_some() {
            // A customer who leaves is in the access log: a line more would fill the log of faults at
            // the customer's will.
            let is_fault = failure.kind != ErrorKind::ClientDisconnected;
            let level = if is_fault { log::Level::Warn } else { log::Level::Debug };
            log::log!(level, "request {}: {failure}", self.id);
        }
        if let Some(limited) = &failure.limited {
            self.services.metrics.rate_limited(model, limited.limit, limited.scope);
        }
    }

    /// Warns the operator about an upstream that reports more usage than the model's limits permit.
    fn report_stale_limits(&self) {
        let RequestStage::Relaying(response) = &self.stage else { return };
        let (Some(usage), Some(model)) = (response.relaying.above_limits(), self.tried_model())
        else {
            return;
        };
        self.services.metrics.usage_above_limits(&model.id);
        log::warn!(
            "request {}: {} reported {} tokens of input and {} of output for `{}`, above its limits \
             of {} and {} in models.yaml, which are out of date",
            self.id,
            response.candidate.target.upstream.name,
            usage.input_tokens_total(),
            usage.output_tokens,
            model.id,
            model.limits.input_tokens_max,
            model.limits.output_tokens_max,
        );
    }

    /// Counts a request whose output limit was lowered, and tells the operator of an upstream that has put
    /// out more. Its report is charged all the same: from the balance, and what that does not cover is the
    /// account's debt.
    fn report_clamp(&self) {
        let (Some(tokens), Some(model)) = (self.clamped(), self.tried_model()) else { return };
        self.services.metrics.clamped(&model.id);
        let RequestStage::Relaying(response) = &self.stage else { return };
        let Some(reported) = response.relaying.beyond_clamp() else { return };
        self.services.metrics.clamp_ignored(&model.id);
        log::warn!(
            "request {}: {} reported {reported} tokens of output for `{}`, although the request limits \
             each choice to {tokens}",
            self.id,
            response.candidate.target.upstream.name,
            model.id,
        );
    }

    /// Warns the operator about an upstream whose usage contradicts itself; the more expensive reading was
    /// charged.
    fn report_contradictions(&self) {
        let RequestStage::Relaying(response) = &self.stage else { return };
        let found = response.relaying.contradictions();
        let Some(model) = self.tried_model().filter(|_| !found.is_empty()) else { return };
        let upstream = &response.candidate.target.upstream.name;
        for cause in found.iter() {
            self.services.metrics.usage_contradicts(upstream, cause);
        }
        let causes: Vec<&str> = found.iter().map(Contradiction::as_str).collect();
        log::warn!(
            "request {}: the usage that {upstream} reported for `{}` contradicts itself ({}); it was \
             read the dearer way",
            self.id,
            model.id,
            causes.join(", "),
        );
    }

    /// The client's address; `None` if the socket was closed before it could be read.
    pub(crate) fn client(&self, session: &Session) -> Option<IpAddr> {
        let peer = session.client_addr()?.as_inet()?.ip();
        let headers = &session.req_header().headers;
        Some(client::address(peer, headers, &self.snapshot.trusted_proxies))
    }

    /// The ending of the request, for its bill.
    pub(crate) fn ending(&self, error: Option<&Error>) -> Ending {
        let left = error.is_some_and(|error| *error.esource() == ErrorSource::Downstream)
            && !self.services.deadline.is_over();
        let is_silent = error.is_some_and(|error| *error.etype() == ErrorType::ReadTimedout);
        let is_abandoned = left || is_silent || self.response.orphan.is_some();
        match &self.stage {
            RequestStage::Relaying(response) if response.relaying.is_complete() => Ending::Complete,
            RequestStage::Relaying(_) if self.response.orphan.is_some() => Ending::Unknown,
            RequestStage::Relaying(response)
                if response.cut.is_some_and(|cut| {
                    !matches!(cut, CutReason::Stopping | CutReason::Withheld)
                }) =>
            {
                Ending::Exhausted
            }
            RequestStage::Relaying(_) if is_abandoned => Ending::Unknown,
            RequestStage::Sending(sending) => match &sending.attempt {
                Some(Attempt { progress: Progress::Silent, .. }) => Ending::Unknown,
                Some(Attempt { progress: Progress::Sent, .. }) if is_abandoned => Ending::Unknown,
                Some(Attempt { progress: Progress::Sent | Progress::Lost, .. }) => Ending::Lost,
                _ => Ending::Failed,
            },
            _ => Ending::Failed,
        }
    }

    /// The bill of the request with this ending.
    pub(crate) fn bill(&self, ending: Ending) -> Bill {
        match &self.stage {
            RequestStage::Sending(sending) => sending.admitted.bill(ending),
            RequestStage::Relaying(response) => response.relaying.bill(ending),
            RequestStage::Unpaid | RequestStage::Settled(_) => Bill::NOTHING,
        }
    }

    /// Obtains the part of a bill beyond the hold from the rest of the fleet, as far as the account has it
    /// there.
    pub(crate) async fn cover(&mut self, bill: &Bill) {
        match (&mut self.stage, &bill.settlement) {
            (RequestStage::Sending(sending), Some(bill)) => sending.admitted.cover(bill).await,
            (RequestStage::Relaying(response), Some(bill)) => response.relaying.cover(bill).await,
            _ => {}
        }
    }

    /// Notes what the upstreams may bill that the customer does not pay.
    fn record_losses(&self, bill: &Bill) {
        let (Some(key), Some(requested)) = (&self.key, &self.model) else { return };
        let last = self.tried_model().unwrap_or(requested);
        let retried = Some((LossCause::Retry, bill.retried));
        for (cause, amount) in bill.loss.into_iter().chain(retried) {
            // Tries that were followed by others began with the model that the request names.
            let model = if cause == LossCause::Retry { requested } else { last };
            if amount > Nanousd::ZERO {
                self.services.ledger.record_loss(Loss {
                    account: key.account,
                    key: key.id,
                    model: Arc::clone(&model.id),
                    upstream: self.upstream_name().to_owned(),
                    request: self.id,
                    cause,
                    amount,
                });
            }
        }
    }

    /// The operator's costs of the tries.
    fn costs(&mut self, bill: &Bill) -> Vec<TryCost> {
        match &mut self.stage {
            RequestStage::Sending(sending) => {
                let at = sending.tried_at();
                sending.admitted.costs(bill, at)
            }
            RequestStage::Relaying(response) => {
                let Response { relaying, candidate, .. } = &mut **response;
                relaying.costs(bill, &candidate.target, || sending::at(candidate))
            }
            RequestStage::Unpaid | RequestStage::Settled(_) => Vec::new(),
        }
    }

    /// Records the operator's cost of a try other than the charged answer.
    fn record_cost(&self, one: TryCost, settled: &SettlementOutcome) {
        let Some(key) = &self.key else { return };
        let charged = match one.kind {
            CostKind::Answer => settled.charged.saturating_add(settled.owed),
            CostKind::Unpaid | CostKind::Retry => Nanousd::ZERO,
        };
        let upstream: Arc<str> = one.at.target.upstream.name.as_str().into();
        if one.kind == CostKind::Answer {
            self.services.metrics.costed(&one.model, &upstream, charged, one.cost);
        }
        let (usage, source) = one.usage;
        self.services.ledger.record_cost(CallCost {
            account: key.account,
            key: key.id,
            model: one.model,
            upstream,
            credential: one.at.credential.into(),
            upstream_model: one.upstream_model.into(),
            request: self.id,
            kind: one.kind,
            usage,
            source,
            charged,
            cost: one.cost,
            at: UnixMs::now(),
        });
    }

    /// Settles the request's hold. Later calls return the first settlement.
    pub(crate) fn settle(&mut self, bill: Bill) -> SettlementOutcome {
        self.record_losses(&bill);
        let costs = self.costs(&bill);
        let settlement = bill.settlement;
        // The stage is taken out to be settled by value; a later call finds `Settled` in its place.
        let settled = match std::mem::replace(&mut self.stage, RequestStage::Unpaid) {
            RequestStage::Unpaid => SettlementOutcome::NOTHING,
            RequestStage::Sending(sending) => sending.admitted.settle(settlement),
            RequestStage::Relaying(response) => response.relaying.settle(settlement),
            RequestStage::Settled(settled) => settled,
        };
        self.stage = RequestStage::Settled(settled);
        for cost in costs {
            self.record_cost(cost, &settled);
        }
        self.admission.seat = None;
        if let Some(permit) = self.admission.permit.take() {
            let usage = &settled.usage;
            permit.settle(usage.input_tokens_total().saturating_add(usage.total(Side::Output)));
        }
        settled
    }
}

/// The client's own trace, where spans are exported: else every request would pay for the look-up.
fn traceparent(headers: &HeaderMap) -> Option<&str> {
    if exports_spans() { headers.get("traceparent")?.to_str().ok() } else { None }
}

/// A method as the log has it: anybody may write anything there, as long as a head.
fn shortened(method: &str) -> &str {
    // It is ASCII, by HTTP's own rule.
    method.get(..METHOD_BYTES_MAX).unwrap_or(method)
}

/// A request whose task was dropped, as when the drain's deadline cuts it, is settled all the same:
/// for what had reached the customer.
impl Drop for RequestContext {
    fn drop(&mut self) {
        if matches!(self.stage, RequestStage::Sending(_) | RequestStage::Relaying(_)) {
            let id = self.id;
            settle_or_void(id, || {
                let bill = self.bill(self.ending(None));
                self.settle(bill);
            });
        }
        self.end_in_flight();
    }
}

/// Runs `settle`, and voids what is held where it panics. A task that panics drops its request, and what
/// panicked may be the meter that is read here: a second panic that leaves a destructor would end the
/// process, and with it the calls of everybody else.
fn settle_or_void(id: RequestId, settle: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(settle)).is_err() {
        log::error!(
            "request {id}: its cost could not be worked out after a panic; nothing is charged"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settles in a destructor, with a meter that panics.
    struct BrokenMeter;

    impl Drop for BrokenMeter {
        fn drop(&mut self) {
            settle_or_void(RequestId::new(), || panic!("the meter panics again"));
        }
    }

    #[test]
    fn a_second_panic_while_a_request_is_settled_does_not_end_the_process() {
        let unwound = catch_unwind(|| {
            let _meter = BrokenMeter;
            panic!("the meter panics");
        });
        assert!(unwound.is_err(), "the first panic goes on");
    }

    #[test]
    fn a_method_takes_no_more_of_the_log_than_a_word() {
        assert_eq!(shortened("UPDATEREDIRECTREF"), "UPDATEREDIRECTREF");
        assert_eq!(shortened(&"X".repeat(60_000)), "X".repeat(METHOD_BYTES_MAX));
    }
}
