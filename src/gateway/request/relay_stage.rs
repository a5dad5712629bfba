//! The stage of a request in which an upstream's response is relayed: its beginning, its state, and the
//! reading on after the client has disconnected.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::balance::CredentialScan;
use crate::gateway::request::context::{RequestContext, RequestStage};
use crate::gateway::request::orphan::Orphan;
use crate::gateway::request::progress::Progress;
use crate::gateway::request::response::{CutReason, Response};
use crate::gateway::request::sending::Attempt;
use crate::pipeline::{AdmittedRequest, Relaying};
use crate::price::{Usage, UsageSource};
use crate::protocols::Framing;

impl RequestContext {
    /// The response being relayed, if any.
    fn relayed(&self) -> Option<&Response> {
        match &self.stage {
            RequestStage::Relaying(response) => Some(response),
            _ => None,
        }
    }

    /// Moves from sending to relaying: the target has answered well. The request body is let go.
    pub(crate) fn begin_relaying(&mut self, framing: Framing) -> Option<&mut Response> {
        self.begin(framing, |admitted| Relaying::new(admitted, framing))
    }

    /// Moves from sending to relaying an answer of which everything is known.
    pub(crate) fn begin_collected(&mut self, framing: Framing, usage: Usage, source: UsageSource) {
        self.begin(framing, |admitted| Relaying::with_usage(admitted, usage, source));
    }

    /// A response whose usage is completely known was sent, or is about to be.
    pub(crate) fn finish_collected(&mut self) {
        self.release_slots();
        if let RequestStage::Relaying(response) = &mut self.stage {
            // Such an answer has nothing left behind its end.
            drop(response.relaying.finish());
        }
    }

    fn begin(
        &mut self,
        framing: Framing,
        relaying: impl FnOnce(Box<AdmittedRequest>) -> Relaying,
    ) -> Option<&mut Response> {
        let stage = std::mem::replace(&mut self.stage, RequestStage::Unpaid);
        let RequestStage::Sending(sending) = stage else {
            self.stage = stage;
            return None;
        };
        let (admitted, body, attempt, candidates) = sending.into_parts();
        let Attempt { candidate, began, .. } = attempt?;
        let relaying = relaying(admitted).with_id_recorder(|| candidates.id_recorder(&candidate));
        let held = body.into_share();
        let (cut, uncovered, is_framing_confirmed) = (None, None, false);
        let framing = framing.for_customers();
        let scan = CredentialScan::new(candidate.channel.finder(candidate.token.as_ref()));
        let response = Response {
            relaying,
            framing,
            candidate,
            began,
            held,
            cut,
            uncovered,
            is_framing_confirmed,
            scan,
        };
        self.stage = RequestStage::Relaying(Box::new(response));
        match &mut self.stage {
            RequestStage::Relaying(response) => Some(response),
            _ => None,
        }
    }

    /// True if the events of the response are sent as the elements of a JSON array.
    pub(crate) fn is_array(&self) -> bool {
        let is_stream = |response: &Response| response.framing == Framing::Sse;
        self.routing.array.is_some() && self.relayed().is_some_and(is_stream)
    }

    /// Encodes a piece of the body as the client receives it; `is_end` marks the last one.
    pub(crate) fn as_sent(&mut self, piece: Bytes, is_end: bool) -> Bytes {
        match (self.is_array(), &mut self.routing.array) {
            (true, Some(array)) => array.write(&piece, is_end),
            _ => piece,
        }
    }

    /// True after the last event of a stream.
    pub(crate) fn is_whole_stream(&self) -> bool {
        let is_whole = |response: &Response| {
            response.framing == Framing::Sse && response.relaying.is_complete()
        };
        self.relayed().is_some_and(is_whole)
    }

    /// True if the response is a document that is rewritten once it is complete.
    pub(crate) fn rewrites_document(&self) -> bool {
        let rewrites = |response: &Response| {
            response.framing == Framing::Json && response.relaying.changes_length()
        };
        self.relayed().is_some_and(rewrites)
    }

    /// True if the response was cut, or a piece waits for the hold that pays for it.
    pub(crate) fn is_held_up(&self) -> bool {
        let is_held_up =
            |response: &Response| response.cut.is_some() || response.uncovered.is_some();
        self.relayed().is_some_and(is_held_up)
    }

    /// True if the response was ended because it contained the operator's credential. None of the rest is
    /// read.
    pub(crate) fn is_withheld(&self) -> bool {
        self.relayed().is_some_and(|response| response.cut == Some(CutReason::Withheld))
    }

    /// True if a piece of the response waits for the hold that pays for it.
    pub(crate) fn has_uncovered(&self) -> bool {
        self.relayed().is_some_and(|response| response.uncovered.is_some())
    }

    /// True once everything has come that the client waits for: clients stop reading at a stream's last
    /// event.
    pub(crate) fn is_whole(&self) -> bool {
        self.relayed().is_some_and(|response| response.relaying.is_complete())
    }

    /// Continues to read the upstream's response after a disconnect. False if that is useless: the upstream
    /// does not have the request, it is free, or its whole cost is already visible.
    pub(crate) fn read_on(&mut self) -> bool {
        if self.response.orphan.is_some() {
            return true;
        }
        let candidate = match &self.stage {
            RequestStage::Sending(sending) => {
                let admitted = &sending.admitted;
                // What has been shown of such a stream is all that it costs: it is ended, and not read on.
                let is_cut = admitted.call.is_all_shown() && admitted.call.streams();
                let attempt = sending.attempt.as_ref();
                let is_pending = |progress| matches!(progress, Progress::Sent | Progress::Silent);
                let attempt = attempt.filter(|attempt| is_pending(attempt.progress));
                attempt.filter(|_| !is_cut && admitted.payment.is_held()).map(|one| &one.candidate)
            }
            RequestStage::Relaying(response) => {
                let relaying = &response.relaying;
                let is_cut = relaying.is_all_shown() && response.framing == Framing::Sse;
                let reads_on = relaying.is_paid() && !is_cut && !relaying.is_complete();
                reads_on.then_some(&response.candidate)
            }
            RequestStage::Unpaid | RequestStage::Settled(_) => None,
        };
        let Some((candidate, model)) = candidate.zip(self.tried_model()) else { return false };
        let rules = model.on_disconnect;
        let total = candidate.target.upstream.timeouts.total;
        // Never longer than if the client had stayed.
        let until = (Instant::now() + rules.time).min(self.started + total).into();
        if let Some(permit) = &mut self.admission.permit {
            // The client may come again at once: slots of its key and account become free within bounds. That
            // of the model stays, since the upstream is at work.
            permit.orphan();
        }
        self.response.orphan =
            Some(Orphan::new(candidate, until, rules.bytes, Arc::clone(&self.services.metrics)));
        true
    }
}
