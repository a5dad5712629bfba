//! The contract of a codec: reading a request into a call, which knows its bounds, its bytes for the upstream
//! and its meter.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use super::allowed_keys::AllowedKey;
use super::collect::Collect;
use super::counter::Counter;
use super::dialect::Dialect;
use super::limits::ModelLimits;
use super::meter::{FixedUsageMeter, Framing, Meter};
use super::operation::Operation;
use super::request::Request;
use super::request_bounds::{OutputBound, RequestBounds};
use super::splice::Splice;
use super::stored::Reference;
use super::task::Submit;
use tollgate_money::price::{InputWays, Traits, Usage, UsageSource};
use tollgate_types::error::GatewayError;

/// A codec: one operation over upstreams of some dialects.
pub trait Codec: Sync + fmt::Debug {
    /// The operation that the codec speaks.
    fn operation(&self) -> Operation;

    /// Dialects of the upstreams that understand it.
    fn dialects(&self) -> &'static [Dialect];

    /// The path below an upstream's base URL.
    fn path(&self) -> &'static str;

    /// The path of one request, where it is not the same for all: some providers name the model in it,
    /// or say in it that the answer comes as events. `None` for a model whose name is [no
    /// segment](super::path_segment::encode) of a path.
    fn path_to(&self, _variables: &PathVariables<'_>) -> Option<Cow<'static, str>> {
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

    /// Keys that a request may have; empty for a codec without a table of them.
    fn allowed_keys(&self) -> Vec<AllowedKey> {
        Vec::new()
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

/// Variables of a request's path.
#[derive(Clone, Copy, Debug)]
pub struct PathVariables<'a> {
    /// The upstream's dialect.
    pub dialect: Dialect,
    /// The model, as the upstream calls it.
    pub model: &'a str,
    /// The answer is to come as events.
    pub streams: bool,
}

/// A request that was read and found valid.
pub trait Call: Send + Sync + fmt::Debug {
    /// Model, usage bounds and references of the request.
    fn bounds(&self) -> &RequestBounds;

    /// Mutable access to the bounds, for facts that become known before the hold.
    fn bounds_mut(&mut self) -> &mut RequestBounds;

    /// True if the customer requested server-sent events.
    fn streams(&self) -> bool {
        self.bounds().stream
    }

    /// Maximum usage of the request, which the hold must cover.
    fn max_usage(&self) -> Usage {
        self.bounds().max_usage
    }

    /// Derivation of [`Self::max_usage`] from the request's limit of output tokens.
    fn output_bound(&self) -> OutputBound {
        self.bounds().output_bound
    }

    /// The least that the request uses once an upstream has taken it: its estimated input.
    fn min_usage(&self) -> Usage {
        self.bounds().min_usage
    }

    /// True if the request and the relayed answer show the whole cost: no reasoning, no media in the prompt,
    /// no tools that the upstream runs. Such a stream can be cut anywhere and is still metered exactly; for
    /// others only the upstream's own report counts.
    fn is_all_shown(&self) -> bool {
        self.bounds().billing.is_all_shown
    }

    /// True if an answer without a report is charged by its visible part, although the model may reason
    /// invisibly. Only where nothing in the request makes the upstream do hidden work or withhold its report,
    /// so that no customer can provoke it. Hidden usage is the operator's loss.
    fn estimates_unreported(&self) -> bool {
        self.bounds().billing.estimates_unreported
    }

    /// The ways in which the upstream can bill its input.
    fn input_ways(&self) -> InputWays {
        self.bounds().billing.input_ways
    }

    /// True if the answer can contain speech.
    fn sounds(&self) -> bool {
        self.bounds().billing.sounds
    }

    /// True if the answer can contain pictures whose tokens are counted apart.
    fn makes_pictures(&self) -> bool {
        self.bounds().billing.makes_pictures
    }

    /// Traits of the request on which the price can depend.
    fn traits(&self) -> Traits {
        self.bounds().billing.traits
    }

    /// Edits of the body for a target that calls the model `upstream_model`.
    fn splice(&self, upstream_model: &str) -> Splice {
        self.bounds().model.rename(upstream_model)
    }

    /// Requested fields that do not go upstream, for a response header.
    fn left_out(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// An upstream's refusal in the customer's dialect, where the upstream speaks another one. `name` is the
    /// error's name in a header.
    fn refusal(&self, _status: u16, _name: Option<&str>, _body: &[u8]) -> Option<GatewayError> {
        None
    }

    /// Local answer for upstreams without such an endpoint.
    fn local_answer(&self) -> Option<Bytes> {
        None
    }

    /// True if no upstream is called, because [`Self::local_answer`] is the answer.
    fn is_local(&self) -> bool {
        false
    }

    /// Upstream objects that the request refers to: it goes to the upstream that made them, and only for the
    /// account that owns them.
    fn refers_to(&self) -> &[Reference] {
        &self.bounds().references
    }

    /// True if the upstream stores the answer, so that later requests can refer to it.
    fn is_stored(&self) -> bool {
        false
    }

    /// A meter for a successful response. Codecs without a meter are billed by the request, whatever the
    /// response reports.
    fn meter(&self, _framing: Framing) -> Box<dyn Meter> {
        Box::new(FixedUsageMeter::new(self.min_usage(), UsageSource::Estimated))
    }

    /// Submission of the task that this call starts.
    fn submit(&self) -> Option<&(dyn Submit + Sync)> {
        None
    }

    /// True if the upstream's events come only in frames of [`Framing::EventStream`].
    fn comes_in_frames(&self) -> bool {
        false
    }

    /// True if the answer is neither JSON nor, unless requested, events.
    fn answers_binary(&self) -> bool {
        false
    }

    /// Assembly of the answer, where it is not relayed as it arrives.
    fn collected(&self) -> Option<&(dyn Collect + Sync)> {
        None
    }

    /// Delivery of the answer to the customer.
    fn delivery(&self) -> Delivery {
        match (self.submit(), self.collected()) {
            (Some(_), _) => Delivery::Submit,
            (None, Some(_)) => Delivery::Collect,
            (None, None) if self.streams() => Delivery::Stream,
            (None, None) => Delivery::Relay,
        }
    }
}

/// Delivery of an upstream's answer to the customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Its bytes are passed on as they come, as one document or one file.
    Relay,
    /// The answer is assembled before any of it is sent, see [`Collect`].
    Collect,
    /// Its bytes are passed on as they come, as events that can be kept alive with comments.
    Stream,
    /// The answer reports an accepted task, see [`Submit`]: the task is on disk before the client is
    /// answered.
    Submit,
}

/// True if an answer without a usage report is charged by its visible part.
#[must_use]
pub fn is_estimated(call: &dyn Call, meter: &dyn Meter) -> bool {
    call.is_all_shown() || call.estimates_unreported() && !meter.hides_output()
}

/// Implements [`Call::bounds`] and [`Call::bounds_mut`] for a call with a field `bounds`.
macro_rules! bounds_in_field {
    () => {
        fn bounds(&self) -> &$crate::RequestBounds {
            &self.bounds
        }

        fn bounds_mut(&mut self) -> &mut $crate::RequestBounds {
            &mut self.bounds
        }
    };
}
pub(crate) use bounds_in_field;
