//! The contract of a codec: reading a request into a call, which knows its bounds, its bytes for the upstream
//! and its meter.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use super::collect::Collect;
use super::counter::Counter;
use super::dialect::Dialect;
use super::limits::ModelLimits;
use super::meter::{Framing, KnownMeter, Meter};
use super::operation::Operation;
use super::request::Request;
use super::splice::Splice;
use super::stored::Reference;
use super::task::Submit;
use super::terms::{OutputBound, Terms};
use tollgate_money::price::{InputWays, Traits, Usage, UsageSource};
use tollgate_types::error::GatewayError;

/// How one operation is spoken to upstreams of some dialects.
pub trait Codec: Sync + fmt::Debug {
    /// The operation that the codec speaks.
    fn operation(&self) -> Operation;

    /// Which upstreams understand it.
    fn dialects(&self) -> &'static [Dialect];

    /// The path below an upstream's base URL.
    fn path(&self) -> &'static str;

    /// The path of one request, where it is not the same for all: some providers name the model in it,
    /// or say in it that the answer comes as events. `None` for a model whose name is [no
    /// segment](super::path_segment::encode) of a path.
    fn path_to(&self, _asked: &PathAsked<'_>) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(self.path()))
    }

    /// Headers that upstreams need and a customer of another dialect does not send.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The provider's counter of input tokens for requests as upstreams get them.
    fn counter(&self) -> Option<Counter> {
        None
    }

    /// Parameters of the customer's query that go upstream; any other is dropped.
    fn query_parameters(&self) -> &'static [&'static str] {
        &[]
    }

    /// Reads a request.
    ///
    /// # Errors
    /// An invalid request, naming the field, by the constraints of the contract and of the model.
    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError>;
}

/// What the path of a request can depend on.
#[derive(Clone, Copy, Debug)]
pub struct PathAsked<'a> {
    /// What the upstream speaks.
    pub dialect: Dialect,
    /// The model, as the upstream calls it.
    pub model: &'a str,
    /// The answer is to come as events.
    pub streams: bool,
}

/// A request that was read and found valid.
pub trait Call: Send + Sync + fmt::Debug {
    /// What every request says.
    fn terms(&self) -> &Terms;

    /// What every request says, to be changed by what becomes known of it before it is held.
    fn terms_mut(&mut self) -> &mut Terms;

    /// Whether the customer asked for server-sent events.
    fn streams(&self) -> bool {
        self.terms().stream
    }

    /// The most that the request can use: what the hold must cover.
    fn bound(&self) -> Usage {
        self.terms().bound
    }

    /// How [`Self::bound`] follows from the request's limit of output tokens.
    fn output_bound(&self) -> OutputBound {
        self.terms().output_bound
    }

    /// The least that the request uses once an upstream has taken it: its estimated input.
    fn floor(&self) -> Usage {
        self.terms().floor
    }

    /// Whether all that the answer costs is to be seen in the request and in what was sent of the answer:
    /// no reasoning, no media in the prompt, no tools that the upstream runs. Then a stream can be cut
    /// anywhere and what was generated is known; else only the upstream's own report tells.
    fn is_all_shown(&self) -> bool {
        false
    }

    /// Whether an answer without a report is charged by what was seen of it, although the model may think
    /// without showing it: nothing in the request has the upstream do more than is seen, or keep its
    /// report to itself, so that no customer can bring it about. What there may be beyond is the
    /// operator's loss.
    fn estimates_unreported(&self) -> bool {
        false
    }

    /// The ways in which the upstream can bill its input.
    fn input_ways(&self) -> InputWays {
        InputWays::default()
    }

    /// Whether the answer can be spoken.
    fn sounds(&self) -> bool {
        false
    }

    /// Whether the answer can have pictures of which tokens are counted apart.
    fn makes_pictures(&self) -> bool {
        false
    }

    /// What of the request the price can depend on.
    fn traits(&self) -> Traits {
        Traits::default()
    }

    /// What changes in the body for a target that calls the model `upstream_model`.
    fn splice(&self, upstream_model: &str) -> Splice {
        self.terms().model.rename(upstream_model)
    }

    /// What of the request does not go upstream although it was asked for, as an answer's header says it.
    fn left_out(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// What a refusal of an upstream's says, where the upstream speaks another dialect than the
    /// customer: its words are then told in the customer's. `name` is what a header calls it.
    fn refusal(&self, _status: u16, _name: Option<&str>, _body: &[u8]) -> Option<GatewayError> {
        None
    }

    /// The answer in the place of upstreams that have no such path.
    fn local_answer(&self) -> Option<Bytes> {
        None
    }

    /// Whether no upstream is asked at all, because [`Self::local_answer`] is all there is.
    fn is_local(&self) -> bool {
        false
    }

    /// What upstreams keep that the request refers to: it goes where that was made, and only for the
    /// account whose it is.
    fn refers_to(&self) -> &[Reference] {
        &self.terms().references
    }

    /// Whether the upstream keeps the answer, so that later requests can refer to it.
    fn is_stored(&self) -> bool {
        false
    }

    /// A meter for a successful response. Without one of its own the call is billed by what was asked
    /// for, whatever the response reports.
    fn meter(&self, _framing: Framing) -> Box<dyn Meter> {
        Box::new(KnownMeter::new(self.floor(), UsageSource::Estimated))
    }

    /// How the task is submitted that this call starts.
    fn submit(&self) -> Option<&(dyn Submit + Sync)> {
        None
    }

    /// Whether the upstream's events come in frames of [`Framing::EventStream`], and in no other way.
    fn comes_in_frames(&self) -> bool {
        false
    }

    /// Whether the answer is neither JSON nor, unless it was asked for, events.
    fn answers_binary(&self) -> bool {
        false
    }

    /// How the answer is put together, where it is not relayed as it comes.
    fn collected(&self) -> Option<&(dyn Collect + Sync)> {
        None
    }

    /// How the answer travels to the customer.
    fn delivery(&self) -> Delivery {
        match (self.submit(), self.collected()) {
            (Some(_), _) => Delivery::Submit,
            (None, Some(_)) => Delivery::Collect,
            (None, None) if self.streams() => Delivery::Stream,
            (None, None) => Delivery::Relay,
        }
    }
}

/// How an upstream's answer travels to the customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Its bytes are passed on as they come, as one document or one file.
    Relay,
    /// It is put together, as [`Collect`] says, before any of it is sent.
    Collect,
    /// Its bytes are passed on as they come, as events that can be kept alive with comments.
    Stream,
    /// It tells that a task was taken, as [`Submit`] reads it: the task is on disk before the
    /// customer is answered.
    Submit,
}

/// Whether an answer whose upstream has not reported what it used is charged by what was seen of it.
#[must_use]
pub fn is_estimated(call: &dyn Call, meter: &dyn Meter) -> bool {
    call.is_all_shown() || call.estimates_unreported() && !meter.hides_output()
}
