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
    fn read(&self, answers: &[Bytes]) -> Result<Collected, Fault>;

    /// What the answers that came used, of a call that failed as a whole: in any order, and not all of
    /// them. `None` where none of them tells of anything that was done.
    fn answered(&self, _answers: &[Bytes]) -> Option<(Usage, UsageSource)> {
        None
    }

    /// What a refusal says, where its status alone does not tell.
    fn refusal(&self, _status: u16, _body: &Bytes) -> Option<Fault> {
        None
    }
}

/// An answer that is whole.
#[derive(Debug)]
pub struct Collected {
    /// What the answer used, by which it is billed.
    pub usage: Usage,
    /// How that is known.
    pub source: UsageSource,
    /// What the customer gets.
    pub content: Content,
}

/// What a customer gets who gets no relayed response.
#[derive(Debug)]
pub enum Content {
    /// This JSON document, which is sent whole.
    Json(Bytes),
    /// The `wav` audio at a URL, in this format.
    Audio(String, AudioFormat),
}

/// Why an upstream did not answer, as it says itself.
#[derive(Debug)]
pub enum Fault {
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
