//! Answers that the gateway puts together from whole responses instead of relaying bytes as they arrive.

use bytes::Bytes;

use super::limits::AudioFormat;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_types::error::GatewayError;

/// A call whose answer the gateway puts together before it sends any of it: from several requests, or
/// with a look at what an upstream that calls everything a success really says.
pub trait Collect {
    /// The bodies to send to a target that calls the model `upstream_model`, for a customer's `body`.
    fn bodies(&self, upstream_model: &str, body: &Bytes) -> Vec<Bytes>;

    /// Puts the answers, in the order of the bodies, together.
    ///
    /// # Errors
    /// What an upstream said instead of answering, with a good status.
    fn read(&self, answers: &[Bytes]) -> Result<CollectedAnswer, UpstreamFault>;

    /// Usage of the answers that arrived for a call that failed as a whole: in any order, and possibly
    /// incomplete. `None` if none of them did any work.
    fn answered(&self, _answers: &[Bytes]) -> Option<(Usage, UsageSource)> {
        None
    }

    /// Classifies a refusal whose status alone is not decisive.
    fn refusal(&self, _status: u16, _body: &Bytes) -> Option<UpstreamFault> {
        None
    }
}

/// A complete answer, assembled by the gateway.
#[derive(Debug)]
pub struct CollectedAnswer {
    /// Billed usage of the answer.
    pub usage: Usage,
    /// Source of the usage.
    pub source: UsageSource,
    /// Content for the customer.
    pub content: CollectedContent,
}

/// Content for a customer whose response is not relayed.
#[derive(Debug)]
pub enum CollectedContent {
    /// A JSON document, sent in one piece.
    Json(Bytes),
    /// The `wav` audio at a URL, in this format.
    Audio(String, AudioFormat),
}

/// Reason why an upstream gave no answer.
#[derive(Debug)]
pub enum UpstreamFault {
    /// The customer's request is at fault, as the upstream says in its own words: relayed with this
    /// status.
    Relayed(u16, Bytes),
    /// The customer's request is at fault.
    Customers(GatewayError),
    /// The upstream is busy: another may not be.
    Busy,
    /// The upstream, or the operator's account there, is at fault: another may do, and the customer
    /// never reads about it. What the operator's log says.
    Upstreams(String),
}
