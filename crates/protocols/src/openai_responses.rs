//! `POST /v1/responses` over upstreams that speak OpenAI's protocol.
//!
//! Fields, events and usage figures: OpenAI's API reference, "Responses" and "Streaming events".

use std::borrow::Cow;

use super::allowed_keys::AllowedKey;
use super::counter::Counter;
use super::disjoint::{CACHE_CONTROL, RequestedLifetime};
use super::estimate::TextSize;
use super::fields;
use super::json::{Object, Value};
use super::json_cursor::Cursor;
use super::limits::{MissingUsage, ModelLimits};
use super::metering::{
    JsonMeter, MeterContext, StreamMeter, StreamState, Tally, VisibleOutput, service_tier,
};
use super::request_bounds::BillingFacts;
use super::request_policy::{OmittedTools, Prompt, SearchLimit};
use super::server_tools::{ItemScan, ServerToolCalls};
use super::splice::Splice;
use super::sse::EventAction;
use super::stored::{self, StoredIds};
use super::typed_elements::each_typed;
use super::{
    Call, Codec, Dialect, Framing, Meter, Operation, Request, RequestBounds, request_policy,
};
use crate::codec::bounds_in_field;
use tollgate_money::price::{ImageSize, Quality, ServiceTier, Traits, Unit, Usage};
use tollgate_types::error::GatewayError;

mod usage;

pub(super) use usage::report;

/// First letters of the type of a tool that makes pictures; a date may follow.
const PICTURE_MAKER: &str = "image_generation";

/// Codec of OpenAI's Responses API.
#[derive(Debug)]
pub struct OpenaiResponses;

impl Codec for OpenaiResponses {
    fn operation(&self) -> Operation {
        Operation::Responses
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Openai]
    }

    fn path(&self) -> &'static str {
        "/responses"
    }

    fn counter(&self) -> Option<Counter> {
        Some(Counter::Responses)
    }

    fn allowed_keys(&self) -> Vec<AllowedKey> {
        AllowedKey::of_allowlist(&request_policy::RESPONSES)
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let left_out = request_policy::searches(body, limits);
        let prompt = request_policy::read_without(
            body,
            &request_policy::RESPONSES,
            limits,
            left_out.as_ref(),
        )?;
        if fields::boolean(body, "background")? == Some(true) {
            let message = "`background` is not offered here: nobody could meter such an answer";
            return Err(GatewayError::invalid("background", message));
        }
        let requested = fields::output_tokens(body, "max_output_tokens", 1, limits)?;
        let output_tokens_max = requested.unwrap_or(limits.output_tokens_max);
        let bounds = RequestBounds::from_prompt(body, &prompt, limits, output_tokens_max)?
            .with_output_limit(requested, limits.output_tokens_max, 1)
            .with_references(stored::references(body))
            .with_billing(billing_facts(body, &prompt, limits));
        let rounds = prompt.rounds;
        Ok(Box::new(ResponsesCall {
            unsplit: prompt
                .written_as
                .unwrap_or_else(|| RequestedLifetime::in_body(body, &CACHE_CONTROL).unsplit()),
            runs_tools: prompt.has_server_tools(),
            bounds,
            left_out,
            search_limit: prompt.search_limit,
            // Upstreams keep what they are not told not to.
            is_stored: body.get_non_null("store").and_then(|store| store.as_bool()) != Some(false),
            model_limits: Usage {
                input_tokens: limits.input_tokens_max.saturating_mul(rounds),
                output_tokens: limits.output_tokens_max.saturating_mul(rounds),
                ..Usage::ZERO
            },
        }))
    }
}

fn billing_facts(body: &Object<'_>, prompt: &Prompt, limits: &ModelLimits) -> BillingFacts {
    let asks_for_nothing_hidden = prompt.is_plain() && body.get_non_null("reasoning").is_none();
    BillingFacts {
        is_all_shown: asks_for_nothing_hidden && !limits.reasoning,
        estimates_unreported: asks_for_nothing_hidden
            && limits.missing_usage == MissingUsage::Estimate,
        input_ways: prompt.input_ways(),
        traits: Traits { service_tier: fields::service_tier(body), ..pictures(body) },
        ..BillingFacts::default()
    }
}

/// The size and the quality of the pictures that a tool of the request makes, where it says them. Of two
/// such tools nobody knows which one is used.
fn pictures(body: &Object<'_>) -> Traits {
    let Some(tools) = body.get_non_null("tools") else { return Traits::default() };
    let mut makers = Vec::new();
    each_typed(body, &tools, |tool, kind| {
        if kind.may_begin_with(PICTURE_MAKER) {
            let tool = Value::new(tool).as_object().ok();
            makers.extend(tool.filter(|tool| {
                let kind = tool.get("type").and_then(|kind| kind.as_str());
                kind.is_some_and(|kind| kind.starts_with(PICTURE_MAKER))
            }));
        }
        makers.len() < 2
    });
    let [maker] = makers.as_slice() else { return Traits::default() };
    let word = |key: &str| maker.get_non_null(key).and_then(|value| value.as_str());
    Traits {
        size: word("size").and_then(|word| ImageSize::parse(&word)),
        quality: word("quality").and_then(|word| Quality::of(&word)),
        ..Traits::default()
    }
}

#[derive(Debug)]
struct ResponsesCall {
    bounds: RequestBounds,
    left_out: Option<OmittedTools>,
    search_limit: Option<SearchLimit>,
    /// The unit of cache writes of which a report does not say how long they are kept.
    unsplit: Unit,
    is_stored: bool,
    /// True if the upstream may run tools.
    runs_tools: bool,
    /// The model's limits: a report above them shows that they are out of date.
    model_limits: Usage,
}

impl Call for ResponsesCall {
    bounds_in_field!();

    fn splice(&self, upstream_model: &str) -> Splice {
        let mut splice = self.bounds.model.rename(upstream_model);
        if let Some(OmittedTools { edit: (range, tools), .. }) = &self.left_out {
            splice.replace(range.clone(), tools.clone());
        }
        if let Some(limit) = &self.search_limit {
            limit.write(&mut splice);
        }
        splice
    }

    fn left_out(&self) -> Option<Cow<'_, str>> {
        self.left_out.as_ref().map(|_| Cow::Borrowed("tools: web_search"))
    }

    fn is_stored(&self) -> bool {
        self.is_stored
    }

    fn meter(&self, framing: Framing) -> Box<dyn Meter> {
        let (frame, unsplit) = (MeterContext::new(&self.bounds, self.model_limits), self.unsplit);
        match framing {
            Framing::Json | Framing::EventStream | Framing::Binary => {
                let report = move |usage: &[u8]| report(usage, unsplit);
                let meter = JsonMeter::new(frame, Box::new(report));
                let items = self.runs_tools.then(|| ItemScan::new("output"));
                Box::new(meter.noting_ids(self.is_stored).counting(items))
            }
            Framing::Sse => {
                let state = StreamState::new(frame);
                let ids = self.is_stored.then(StoredIds::default);
                let server_calls = self.runs_tools.then(ServerToolCalls::default);
                let tally = ResponsesTally { state, unsplit, ended: false, ids, server_calls };
                Box::new(StreamMeter::new(tally))
            }
        }
    }
}

/// The members of a stream event that count.
#[derive(Default)]
struct ResponsesEvent<'a> {
    /// The event's type, with its quotes.
    kind: &'a [u8],
    /// Of a delta, whatever it is a delta of.
    text: TextSize,
    /// The `usage` of the event's response; more than one only if the key is repeated.
    usages: Vec<&'a [u8]>,
    /// The tier of that response.
    service_tier: Option<ServiceTier>,
    /// All output items of the response.
    output: Option<&'a [u8]>,
    /// The item that the event concerns.
    item: Option<&'a [u8]>,
    /// The ids of that response, of an item, and of the container that this ran in, with their quotes.
    ids: [Option<&'a [u8]>; 3],
}

impl<'a> ResponsesEvent<'a> {
    /// Reads the data of an event; `None` for what no event looks like.
    fn read(data: &'a [u8]) -> Option<Self> {
        let mut event = Self::default();
        Cursor::new(data).object(|key, value| {
            match key {
                b"type" => event.kind = value.raw()?,
                b"delta" => event.text = value.text_size()?,
                b"response" => value.object(|key, value| {
                    match key {
                        b"usage" => event.usages.extend(value.non_null()?),
                        b"id" => event.ids[0] = value.non_null()?,
                        b"output" => event.output = value.non_null()?,
                        b"service_tier" => {
                            event.service_tier = value.non_null()?.and_then(service_tier);
                        }
                        _ => value.skip()?,
                    }
                    Some(())
                })?,
                b"item" => {
                    let item = value.raw()?;
                    event.item = Some(item);
                    Cursor::new(item).object(|key, value| {
                        match key {
                            b"id" => event.ids[1] = value.non_null()?,
                            b"container_id" => event.ids[2] = value.non_null()?,
                            _ => value.skip()?,
                        }
                        Some(())
                    })?;
                }
                _ => value.skip()?,
            }
            Some(())
        })?;
        Some(event)
    }
}

/// Meters a stream of response events.
struct ResponsesTally {
    state: StreamState,
    /// The unit of cache writes of which a report does not say how long they are kept.
    unsplit: Unit,
    ended: bool,
    /// Ids of objects that the upstream stores, if it stores any.
    ids: Option<StoredIds>,
    /// Calls of tools that the upstream runs, if the request permits any.
    server_calls: Option<ServerToolCalls>,
}

impl Tally for ResponsesTally {
    type Totals = StreamState;

    fn judge(&mut self, data: &[u8]) -> EventAction {
        if self.ended {
            // What comes behind the last event is relayed, and not believed.
            return EventAction::Keep;
        }
        let Some(event) = ResponsesEvent::read(data) else { return EventAction::Keep };
        self.state.show(VisibleOutput::from_text(event.text));
        if let Some(ids) = &mut self.ids {
            event.ids.into_iter().flatten().for_each(|id| ids.add(id));
        }
        if let (Some(server_calls), Some(item)) = (&mut self.server_calls, event.item)
            && event.kind == b"\"response.output_item.done\""
        {
            server_calls.count(item);
            self.state.made = server_calls.usage();
        }
        match event.kind {
            b"\"response.completed\"" => self.ended = true,
            b"\"response.incomplete\"" => {
                self.ended = true;
                self.state.ended_at_limit = true;
            }
            b"\"response.failed\"" | b"\"error\"" => {
                self.ended = true;
                self.state.failed = true;
            }
            _ => {}
        }
        if self.ended {
            // At the beginning it is the requested tier.
            self.state.service_tier = event.service_tier;
            if let Some((server_calls, output)) = self.server_calls.as_ref().zip(event.output) {
                // All items are here once more, also those of an upstream that tells of none before.
                self.state.made =
                    server_calls.usage().dearer(&ServerToolCalls::from_items(output).usage());
            }
            let read = |usage: &&[u8]| report(usage, self.unsplit);
            for report in event.usages.iter().filter_map(read) {
                self.state.report(report);
            }
        }
        EventAction::Keep
    }

    fn is_complete(&self) -> bool {
        self.ended
    }

    fn totals(&self) -> &StreamState {
        &self.state
    }

    fn stored_ids(&self) -> &[String] {
        self.ids.as_ref().map_or(&[], StoredIds::all)
    }
}

#[cfg(test)]
mod tests;
