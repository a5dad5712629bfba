//! The response of a request: the client's view of it, and an upstream's response that is being relayed.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::balance::{Candidate, CredentialScan, Outcome};
use crate::error::GatewayError;
use crate::gateway::request::orphan::Orphan;
use crate::gateway::request::sending;
use crate::gateway::wire::memory::budget::BudgetShare;
use crate::ledger::TaskId;
use crate::metrics::Metrics;
use crate::pipeline::Relaying;
use crate::protocols::Framing;

/// The response to the client, as far as it has come.
#[derive(Default)]
pub(crate) struct ClientResponse {
    /// Time from the request to the first byte of the response.
    pub(crate) first_byte: Option<Duration>,
    /// Response in the place of an upstream that cannot give one.
    pub(crate) local_answer: Option<Bytes>,
    /// The failure for `fail_to_proxy` and the log.
    pub(crate) failure: Option<GatewayError>,
    /// The id that the upstream gave the request that it failed or refused.
    pub(crate) upstream_request_id: Option<String>,
    /// The task that the request has started.
    pub(crate) task: Option<TaskId>,
    /// Present while the upstream's response is read on after the client has disconnected.
    pub(crate) orphan: Option<Orphan>,
}

/// State of a response that is being relayed.
pub(crate) struct Response {
    pub(crate) relaying: Relaying,
    pub(crate) framing: Framing,
    pub(crate) candidate: Candidate,
    pub(crate) began: Instant,
    /// Memory of the withheld part, from the budget of bodies.
    pub(crate) held: BudgetShare,
    /// The closing event was passed, for this reason; whatever still comes is not the customer's.
    pub(crate) cut: Option<CutReason>,
    /// A piece that waits for a durable hold, and whether it is the last.
    pub(crate) uncovered: Option<(Bytes, bool)>,
    /// The body has confirmed the framing of its head.
    pub(crate) is_framing_confirmed: bool,
    /// Searches the client's data for the operator's credential.
    pub(crate) scan: CredentialScan,
}

/// Reason for ending a response before its upstream did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutReason {
    /// Hold and balance are used up.
    Exhausted,
    /// The response took longer than permitted.
    Overdue,
    /// The process is about to end.
    Stopping,
    /// The response contained the operator's credential.
    Withheld,
}

impl Response {
    /// Records an outcome other than success.
    pub(crate) fn report(&mut self, outcome: Outcome, metrics: &Metrics) {
        sending::report(&mut self.candidate, self.began, outcome, metrics);
    }
}
