//! `POST /v1/responses` over upstreams that speak OpenAI's protocol.
//!
//! Fields, events and usage figures: OpenAI's API reference, "Responses" and "Streaming events".

use std::borrow::Cow;

use serde::Deserialize;

use super::allowed_keys::AllowedKey;
use super::counter::Counter;
use super::counts::{CountsObject, read_counts};
use super::disjoint::{
    CACHE_CONTROL, CacheWritten, InclusiveCounts, LIFETIMES, NamedCount, RequestedLifetime,
    WireLifetimes, count,
};
use super::estimate::TextSize;
use super::fields;
use super::json::Object;
use super::json_cursor::Cursor;
use super::limits::{MissingUsage, ModelLimits};
use super::metering::{
    self, JsonMeter, MeterContext, StreamMeter, StreamState, TextTally, UsageReport, VisibleOutput,
    WireCostDetails, service_tier,
};
use super::request_policy::{OmittedTools, SearchLimit};
use super::server_tools::{ItemScan, ServerToolCalls};
use super::splice::Splice;
use super::sse::EventAction;
use super::stored::{self, StoredIds};
use super::{
    Call, Codec, Dialect, Framing, Meter, Operation, Request, RequestBounds, request_policy,
};
use tollgate_money::price::{ImageSize, InputWays, Quality, ServiceTier, Traits, Unit, Usage};
use tollgate_types::error::GatewayError;

/// The codec of OpenAI's Responses API.
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
            .with_references(stored::references(body));
        let rounds = prompt.rounds;
        let asks_for_nothing_hidden = prompt.is_plain() && body.get_non_null("reasoning").is_none();
        Ok(Box::new(ResponsesCall {
            is_all_shown: asks_for_nothing_hidden && !limits.reasoning,
            estimates_unreported: asks_for_nothing_hidden
                && limits.missing_usage == MissingUsage::Estimate,
            unsplit: prompt
                .written_as
                .unwrap_or_else(|| RequestedLifetime::in_body(body, &CACHE_CONTROL).unsplit()),
            traits: Traits { service_tier: fields::service_tier(body), ..pictures(body) },
            runs_tools: prompt.has_server_tools(),
            input_ways: prompt.input_ways(),
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

/// The size and the quality of the pictures that a tool of the request makes, where it says them. Of two
/// such tools nobody knows which one is used.
fn pictures(body: &Object<'_>) -> Traits {
    let tools = body.get_non_null("tools").and_then(|tools| tools.elements());
    let objects = tools.into_iter().flatten().filter_map(|tool| tool.as_object().ok());
    let mut makers = objects.filter(|tool| {
        let kind = tool.get("type").and_then(|kind| kind.as_str());
        kind.is_some_and(|kind| kind.starts_with("image_generation"))
    });
    let (Some(maker), None) = (makers.next(), makers.next()) else { return Traits::default() };
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
    is_all_shown: bool,
    estimates_unreported: bool,
    /// The unit of cache writes of which a report does not say how long they are kept.
    unsplit: Unit,
    traits: Traits,
    is_stored: bool,
    /// True if the upstream may run tools.
    runs_tools: bool,
    /// The ways in which its input can be billed.
    input_ways: InputWays,
    /// The model's limits: a report above them shows that they are out of date.
    model_limits: Usage,
}

impl Call for ResponsesCall {
    fn bounds(&self) -> &RequestBounds {
        &self.bounds
    }

    fn bounds_mut(&mut self) -> &mut RequestBounds {
        &mut self.bounds
    }

    fn is_all_shown(&self) -> bool {
        self.is_all_shown
    }

    fn estimates_unreported(&self) -> bool {
        self.estimates_unreported
    }

    fn traits(&self) -> Traits {
        self.traits
    }

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

    fn input_ways(&self) -> InputWays {
        self.input_ways
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

/// Reads the `usage` object of a response. `unsplit` is the unit of cache writes without a reported lifetime.
pub(super) fn report(usage: &[u8], unsplit: Unit) -> Option<UsageReport> {
    if let Some(plain) = WireResponsesUsage::plain(usage) {
        return Some(plain.to_report(unsplit));
    }
    let read: WireResponsesUsage = metering::read_wire(usage)?;
    Some(read.to_report(unsplit).with_no_counts_noted(usage))
}

/// The `usage` object. `input_tokens` holds what the cache has read or written, `output_tokens` the
/// reasoning.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireResponsesUsage {
    #[serde(deserialize_with = "count")]
    input_tokens: Option<u64>,
    input_tokens_details: Option<WireInputDetails>,
    #[serde(deserialize_with = "count")]
    output_tokens: Option<u64>,
    output_tokens_details: Option<WireOutputDetails>,
    #[serde(deserialize_with = "count")]
    total_tokens: Option<u64>,
    /// Anthropic's names, which LiteLLM has beside the details.
    #[serde(deserialize_with = "count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    cache_creation: Option<WireLifetimes>,
    cache_creation_token_details: Option<WireLifetimes>,
    /// OpenRouter's charge to the operator, in dollars.
    #[serde(deserialize_with = "metering::if_readable")]
    cost: Option<serde_json::Number>,
    /// True if a key of the operator's own has paid OpenRouter's provider; [`WireCostDetails`] has the
    /// amount.
    #[serde(deserialize_with = "metering::if_readable")]
    is_byok: Option<bool>,
    #[serde(deserialize_with = "metering::if_readable")]
    cost_details: Option<WireCostDetails>,
    /// xAI's charge to the operator, in ten-billionths of a dollar.
    #[serde(deserialize_with = "metering::if_readable")]
    cost_in_usd_ticks: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireInputDetails {
    #[serde(deserialize_with = "count")]
    cached_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_write_tokens: Option<u64>,
    cache_write_tokens_details: Option<WireWriteDetails>,
    #[serde(deserialize_with = "count")]
    audio_tokens: Option<u64>,
    /// Names of cache writes at Qwen, and at LiteLLM.
    #[serde(deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_creation_tokens: Option<u64>,
    /// This gateway's name for their lifetimes, and LiteLLM's.
    cache_creation: Option<WireLifetimes>,
    cache_creation_token_details: Option<WireLifetimes>,
}

/// Tokens written to the cache, by lifetime.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct WireWriteDetails {
    #[serde(deserialize_with = "count")]
    ttl_30m_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    ttl_12h_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireOutputDetails {
    #[serde(deserialize_with = "count")]
    reasoning_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    audio_tokens: Option<u64>,
}

/// Objects with the counts of a [`WireResponsesUsage`].
const COUNTS: [CountsObject; 5] = [
    (
        "",
        &[
            "input_tokens",
            "output_tokens",
            "total_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
            "cost_in_usd_ticks",
            "cost",
        ],
    ),
    (
        "input_tokens_details",
        &[
            "cached_tokens",
            "cache_write_tokens",
            "audio_tokens",
            "cache_creation_input_tokens",
            "cache_creation_tokens",
        ],
    ),
    ("output_tokens_details", &["reasoning_tokens", "audio_tokens"]),
    ("cache_creation", &LIFETIMES),
    ("cache_creation_token_details", &LIFETIMES),
];

impl WireResponsesUsage {
    /// Reads one that is written as OpenAI writes it; `None` for others.
    fn plain(usage: &[u8]) -> Option<Self> {
        let [
            input_tokens,
            output_tokens,
            total_tokens,
            written_at_top,
            read_at_top,
            cost_in_usd_ticks,
            cost,
            cached_tokens,
            cache_write_tokens,
            audio_input,
            cache_creation_input_tokens,
            cache_creation_tokens,
            reasoning_tokens,
            audio_output,
            short,
            hour,
            short_again,
            hour_again,
        ] = read_counts(usage, &COUNTS)?;
        Some(Self {
            input_tokens,
            input_tokens_details: Some(WireInputDetails {
                cached_tokens,
                cache_write_tokens,
                audio_tokens: audio_input,
                cache_creation_input_tokens,
                cache_creation_tokens,
                ..WireInputDetails::default()
            }),
            output_tokens,
            output_tokens_details: Some(WireOutputDetails {
                reasoning_tokens,
                audio_tokens: audio_output,
            }),
            total_tokens,
            cache_read_input_tokens: read_at_top,
            cache_creation_input_tokens: written_at_top,
            cache_creation: WireLifetimes::plain(short, hour),
            cache_creation_token_details: WireLifetimes::plain(short_again, hour_again),
            cost: cost.map(serde_json::Number::from),
            cost_in_usd_ticks,
            ..Self::default()
        })
    }

    /// The usage in disjoint kinds.
    fn to_report(&self, unsplit: Unit) -> UsageReport {
        let totals = self.totals(unsplit);
        let has_details = totals.read.is_there() || totals.written.is_there();
        let (usage, contradictions) = totals.disjoint();
        let reasoning =
            self.output_tokens_details.as_ref().and_then(|details| details.reasoning_tokens);
        let thinking = reasoning.map(|tokens| tokens > 0);
        let served = Traits { thinking, ..Traits::default() };
        let byok = self.cost_details.as_ref().filter(|_| self.is_byok == Some(true));
        let cost = metering::cost(self.cost.as_ref(), self.cost_in_usd_ticks, byok);
        UsageReport { usage, has_details, rounds: 1, served, cost, contradictions }
    }

    /// Cache writes: for the usual time and twelve hours by OpenAI's words, for other times by Anthropic's.
    fn written(&self, total: NamedCount, lifetimes: &[Option<WireLifetimes>]) -> CacheWritten {
        let written = CacheWritten::new(total, lifetimes);
        let details = self.input_tokens_details.as_ref();
        let split = details.and_then(|details| details.cache_write_tokens_details);
        let split = split.unwrap_or_default();
        CacheWritten {
            short: written.short.max(split.ttl_30m_tokens.unwrap_or(0)),
            twelve_hours: split.ttl_12h_tokens.unwrap_or(0),
            ..written
        }
    }

    /// The counts of input and output. Some imitators count reasoning beside the output, as some do for chat.
    fn totals(&self, unsplit: Unit) -> InclusiveCounts {
        let nothing = (WireInputDetails::default(), WireOutputDetails::default());
        let input = self.input_tokens_details.as_ref().unwrap_or(&nothing.0);
        let output = self.output_tokens_details.as_ref().unwrap_or(&nothing.1);
        let written = NamedCount::from_values(&[
            input.cache_write_tokens,
            input.cache_creation_input_tokens,
            input.cache_creation_tokens,
            self.cache_creation_input_tokens,
        ]);
        let lifetimes = [
            input.cache_creation,
            input.cache_creation_token_details,
            self.cache_creation,
            self.cache_creation_token_details,
        ];
        InclusiveCounts {
            prompt: self.input_tokens,
            read: NamedCount::from_values(&[input.cached_tokens, self.cache_read_input_tokens]),
            written: self.written(written, &lifetimes),
            audio_input: input.audio_tokens.unwrap_or(0),
            output: self.output_tokens.unwrap_or(0),
            reasoning: output.reasoning_tokens.unwrap_or(0),
            audio_output: output.audio_tokens.unwrap_or(0),
            total: self.total_tokens,
            ..InclusiveCounts::new(unsplit)
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
    /// Of the response that the event carries; more than one only where the key stands there twice.
    usages: Vec<&'a [u8]>,
    /// The tier of that response.
    service_tier: Option<ServiceTier>,
    /// All of its items.
    output: Option<&'a [u8]>,
    /// The item that it is about.
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
    /// Of what the upstream keeps, where it keeps something.
    ids: Option<StoredIds>,
    /// Of tools that the upstream runs, where it may.
    server_calls: Option<ServerToolCalls>,
}

impl TextTally for ResponsesTally {
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

    fn state(&self) -> &StreamState {
        &self.state
    }

    fn stored_ids(&self) -> &[String] {
        self.ids.as_ref().map_or(&[], StoredIds::all)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::limits::{PassList, PricedFeatures};
    use crate::pieces;
    use crate::request_policy::TOOLS_TOKENS_MAX;
    use tollgate_money::money::Nanousd;
    use tollgate_money::price::UsageSource;

    const REQUEST: &[u8] = include_bytes!("../fixtures/openai_responses/request.json");
    const RESPONSE: &str = include_str!("../fixtures/openai_responses/response.json");
    const STREAM: &str = include_str!("../fixtures/openai_responses/stream.sse");
    const TEXT: &str = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hello, world\"}\n\n";
    const FAILED: &str = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"usage\":null}}\n\n";

    fn read(body: &[u8]) -> Result<Box<dyn Call>, GatewayError> {
        read_for(body, true)
    }

    /// For a model of which the operator passes an unknown field and searches in the web.
    fn read_for(body: &[u8], reasoning: bool) -> Result<Box<dyn Call>, GatewayError> {
        let pass = PassList {
            fields: vec!["x_unknown".to_owned()],
            tools: vec!["web_search".to_owned()],
            content: Vec::new(),
        };
        let limits = ModelLimits {
            input_tokens_max: 128_000,
            output_tokens_max: 16_384,
            reasoning,
            pass,
            ..ModelLimits::default()
        };
        OpenaiResponses.read(&Request::Json(Object::parse(body).expect("JSON")), &limits)
    }

    fn with(fields: &str) -> String {
        format!(r#"{{"model":"m","input":"hi"{fields}}}"#)
    }

    /// Relays a response in pieces of `size` bytes.
    fn relay(response: &str, framing: Framing, size: usize) -> (String, Box<dyn Meter>) {
        pieces::relay(read(with("").as_bytes()).expect("valid").meter(framing), response, size)
    }

    #[test]
    fn a_rename_changes_the_name_and_nothing_else() {
        let call = read(REQUEST).expect("valid");
        let renamed = call.splice("upstream-name").apply(&Bytes::from_static(REQUEST));
        let expected =
            std::str::from_utf8(REQUEST).expect("text").replace("public-name", "upstream-name");
        assert_eq!(renamed, expected.as_bytes());
    }

    #[test]
    fn answers_are_relayed_byte_for_byte_and_metered_by_their_usage() {
        let expected =
            Usage { input_tokens: 27, cache_read_tokens: 9, output_tokens: 87, ..Usage::ZERO };
        for (text, framing) in [(RESPONSE, Framing::Json), (STREAM, Framing::Sse)] {
            for size in [1, 7, 13, text.len()] {
                let (relayed, meter) = relay(text, framing, size);
                assert_eq!(relayed, text, "in pieces of {size}");
                assert!(meter.is_complete() && !meter.has_failed());
                assert_eq!(
                    meter.measure(),
                    (expected, UsageSource::Upstream),
                    "{framing:?} {size}"
                );
            }
        }
    }

    #[test]
    fn ids_of_what_is_kept_are_noted_and_of_what_is_not_kept_are_not() {
        for (text, framing) in [(RESPONSE, Framing::Json), (STREAM, Framing::Sse)] {
            let (_, meter) = relay(text, framing, 7);
            let ids = meter.stored_ids();
            assert!(ids.iter().any(|id| id.starts_with("resp_")), "{framing:?}: {ids:?}");
            assert!(ids.iter().any(|id| !id.starts_with("resp_")), "{framing:?}: {ids:?}");
            let call = read(with(r#","store":false"#).as_bytes()).expect("valid");
            let (_, meter) = pieces::relay(call.meter(framing), text, 7);
            assert_eq!(meter.stored_ids(), [""; 0]);
        }
    }

    #[test]
    fn a_stream_that_is_cut_or_fails_costs_what_was_relayed() {
        let min_usage = read(with("").as_bytes()).expect("valid").min_usage();
        let (_, meter) = relay(TEXT, Framing::Sse, 9);
        assert!(!meter.is_complete());
        // It is 3 tokens.
        assert_eq!(
            meter.measure(),
            (Usage { output_tokens: 6, ..min_usage }, UsageSource::Estimated)
        );
        let (_, meter) = relay(FAILED, Framing::Sse, 9);
        assert!(meter.has_failed() && meter.is_complete() && meter.relayed().output_tokens == 0);
        let late = STREAM.replace("\"output_tokens\":87", "\"output_tokens\":8700");
        let (_, meter) = relay(&format!("{STREAM}{late}"), Framing::Sse, 9);
        assert_eq!(meter.measure().0.output_tokens, 87, "what comes late is not believed");
    }

    #[test]
    fn reports_are_believed_unless_they_are_zeros_beside_text() {
        let ended = |usage: &str| {
            format!(
                "{TEXT}event: x\ndata: {{\"type\":\"response.completed\",\"response\":{{\"usage\":{usage}}}}}\n\n"
            )
        };
        for (usage, output, source) in [
            (r#"{"input_tokens":4,"output_tokens":0}"#, 6, UsageSource::Estimated),
            (
                r#"{"input_tokens":4,"output_tokens":5,"total_tokens":29}"#,
                25,
                UsageSource::Upstream,
            ),
            (r#"{"input_tokens":4.0,"output_tokens":"5"}"#, 5, UsageSource::Upstream),
            (r#"{"input_tokens":4,"output_tokens":99999}"#, 99_999, UsageSource::Upstream),
        ] {
            let (_, meter) = relay(&ended(usage), Framing::Sse, 9);
            let expected = Usage { input_tokens: 4, output_tokens: output, ..Usage::ZERO };
            assert_eq!(meter.measure(), (expected, source), "{usage}");
            assert_eq!(meter.is_above_limits(), output > 16_384, "{usage}");
        }
    }

    /// A cache of twelve hours has a price of its own: what was written to it is counted apart, and so is
    /// what a report does not split where the request asks for it.
    #[test]
    fn cache_writes_are_counted_by_lifetime() {
        let priced =
            PricedFeatures { units: vec![Unit::CacheWrite12hTokens], ..PricedFeatures::default() };
        let limits = ModelLimits {
            input_tokens_max: 1_000_000,
            output_tokens_max: 9,
            priced,
            ..ModelLimits::default()
        };
        let mark = r#"{"mode":"explicit","ttl":"12h"}"#;
        let marked = format!(
            r#"{{"model":"m","input":[{{"role":"user","content":[
            {{"type":"input_text","text":"a","prompt_cache_breakpoint":{mark}}}]}}]}}"#
        );
        for (request, details, short, long) in [
            (
                &marked,
                r#""cache_write_tokens":100000,"cache_write_tokens_details":
                {"ttl_30m_tokens":0,"ttl_12h_tokens":100000}"#,
                0,
                100_000,
            ),
            (
                &marked,
                r#""cached_tokens":10,"cache_write_tokens_details":
                {"ttl_30m_tokens":30,"ttl_12h_tokens":70}"#,
                30,
                70,
            ),
            (
                &with(""),
                r#""cache_write_tokens":100,"cache_write_tokens_details":
                {"ttl_30m_tokens":30,"ttl_12h_tokens":70}"#,
                30,
                70,
            ),
            (&marked, r#""cache_write_tokens":100"#, 0, 100),
            (
                &marked,
                r#""cache_write_tokens":100,"cache_write_tokens_details":{"ttl_30m_tokens":30}"#,
                30,
                70,
            ),
            (&with(""), r#""cache_write_tokens":100"#, 100, 0),
        ] {
            let body = Object::parse(request.as_bytes()).expect("JSON");
            let call = OpenaiResponses.read(&Request::Json(body), &limits).expect("valid");
            let usage = format!(
                r#"{{"input_tokens":200000,"input_tokens_details":{{{details}}},"output_tokens":5}}"#
            );
            let whole = format!(r#"{{"id":"r","usage":{usage}}}"#);
            let event =
                format!(r#"{{"type":"response.completed","response":{{"usage":{usage}}}}}"#)
                    .replace('\n', " ");
            let event = format!("event: x\ndata: {event}\n\n");
            for (answer, framing) in [(whole, Framing::Json), (event, Framing::Sse)] {
                let (_, meter) = pieces::relay(call.meter(framing), &answer, 9);
                let (used, _) = meter.measure();
                let written = (used.cache_write_tokens, used.cache_write_12h_tokens);
                assert_eq!(written, (short, long), "{request} {answer}");
                assert_eq!(used.input_tokens_total(), 200_000, "{answer}");
            }
        }
    }

    #[test]
    fn what_an_upstream_says_that_an_answer_costs_is_read() {
        for (more, nano) in [
            (r#","cost":0.00014"#, Some(140_000)),
            (r#","cost":0"#, Some(0)),
            (r#","cost_in_usd_ticks":37756"#, Some(3776)),
            (r#","cost":-1,"cost_in_usd_ticks":-1"#, None),
            ("", None),
        ] {
            let usage = format!(r#"{{"input_tokens":4,"output_tokens":5{more}}}"#);
            let whole = format!(r#"{{"id":"r","usage":{usage}}}"#);
            let event =
                format!(r#"{{"type":"response.completed","response":{{"usage":{usage}}}}}"#);
            let event = format!("event: x\ndata: {event}\n\n");
            for (answer, framing) in [(whole, Framing::Json), (event, Framing::Sse)] {
                let (_, meter) = relay(&answer, framing, 9);
                assert_eq!(meter.reported_cost(), nano.map(Nanousd::new), "{answer}");
                let expected = Usage { input_tokens: 4, output_tokens: 5, ..Usage::ZERO };
                assert_eq!(meter.measure(), (expected, UsageSource::Upstream), "{answer}");
            }
        }
    }

    #[test]
    fn pictures_are_priced_by_the_tool_that_makes_them() {
        let traits = |tools: &str| {
            let pass =
                PassList { tools: vec!["image_generation*".to_owned()], ..PassList::default() };
            let limits = ModelLimits {
                input_tokens_max: 1000,
                output_tokens_max: 9,
                pass,
                ..ModelLimits::default()
            };
            let body = with(&format!(r#","tools":[{tools}]"#));
            let request = Request::Json(Object::parse(body.as_bytes()).expect("JSON"));
            OpenaiResponses.read(&request, &limits).expect(tools).traits()
        };
        let fine = r#"{"type":"image_generation","size":"1536x1024","quality":"high"}"#;
        let coarse = r#"{"type":"image_generation","quality":"low"}"#;
        let size = ImageSize::parse("1536x1024");
        let expected = Traits { size, quality: Some(Quality::High), ..Traits::default() };
        assert_eq!(traits(fine), expected);
        assert_eq!(traits(&format!(r#"{{"type":"function","name":"f"}},{fine}"#)), expected);
        for unknown in [
            r#"{"type":"image_generation","size":"auto","quality":"auto"}"#.to_owned(),
            r#"{"type":"function","name":"f","quality":"low"}"#.to_owned(),
            // Nobody knows which of two is used: not the cheaper one.
            format!("{coarse},{fine}"),
            format!("{coarse},{coarse}"),
        ] {
            assert_eq!(traits(&unknown), Traits::default(), "{unknown}");
        }
    }

    #[test]
    fn what_ran_is_counted_where_the_last_event_alone_tells_of_it() {
        let item = r#"{"type":"web_search_call","action":{"type":"search"}}"#;
        let done = format!(
            "event: x\ndata: {{\"type\":\"response.output_item.done\",\"item\":{item}}}\n\n"
        );
        let ended = |items: &str| {
            let response =
                format!(r#"{{"output":[{items}],"usage":{{"input_tokens":4,"output_tokens":5}}}}"#);
            format!(
                "event: x\ndata: {{\"type\":\"response.completed\",\"response\":{response}}}\n\n"
            )
        };
        let request = with(r#","tools":[{"type":"web_search"}]"#);
        let priced = PricedFeatures { units: vec![Unit::WebSearches], ..PricedFeatures::default() };
        let limits = ModelLimits {
            input_tokens_max: 1000,
            output_tokens_max: 9,
            priced,
            ..ModelLimits::default()
        };
        let body = Object::parse(request.as_bytes()).expect("JSON");
        let call = OpenaiResponses.read(&Request::Json(body), &limits).expect("valid");
        for (stream, searches) in [
            (format!("{done}{}", ended("")), 1),
            (format!("{done}{}", ended(item)), 1),
            (ended(item), 1),
            (ended(&format!("{item},{item}")), 2),
            (format!("{done}{done}{}", ended(item)), 2),
        ] {
            let (_, meter) = pieces::relay(call.meter(Framing::Sse), &stream, 9);
            assert_eq!(meter.measure().0.web_searches, searches, "{stream}");
        }
    }

    #[test]
    fn bytes_bound_the_input_unless_some_is_elsewhere() {
        let max_usage = |fields: &str| read(with(fields).as_bytes()).expect("valid").max_usage();
        let tool = r#","tools":[{"type":"function","name":"f"}]"#;
        assert_eq!(max_usage("").input_tokens, with("").len() as u64);
        assert_eq!(max_usage(tool).input_tokens, with(tool).len() as u64 + TOOLS_TOKENS_MAX);
        assert_eq!(max_usage(r#","max_output_tokens":7"#).output_tokens, 7);
        for fields in [
            r#","previous_response_id":"resp_1""#,
            r#","prompt":{"id":"p"}"#,
            r#","instructions":[{"role":"user","content":[{"type":"input_image"}]}]"#,
            r#","x_unknown":"may stand for anything""#,
        ] {
            assert_eq!(max_usage(fields).input_tokens, 128_000, "{fields}");
        }
        let search = r#","max_output_tokens":7,"tools":[{"type":"web_search"}]"#;
        let held = max_usage(search);
        assert_eq!((held.input_tokens, held.output_tokens), (1_280_000, 70), "for each round");
        let held = max_usage(&format!(r#"{search},"max_tool_calls":1"#));
        assert_eq!((held.input_tokens, held.output_tokens), (256_000, 14));
        let compacts = r#","max_output_tokens":7,"context_management":[{"type":"compaction"}]"#;
        let held = max_usage(compacts);
        assert_eq!((held.input_tokens, held.output_tokens), (256_000, 16_391), "a summary more");
    }

    #[test]
    fn all_is_shown_of_a_plain_prompt_by_a_model_that_does_not_think() {
        let shown = |fields: &str, reasoning| {
            let body = with(&format!(r#","stream":true{fields}"#));
            read_for(body.as_bytes(), reasoning).expect(fields).is_all_shown()
        };
        assert!(shown("", false) && !shown("", true));
        for fields in [
            r#","reasoning":{"effort":"low"}"#,
            r#","previous_response_id":"resp_1""#,
            r#","tools":[{"type":"web_search"}]"#,
            r#","x_unknown":1"#,
        ] {
            assert!(!shown(fields, false), "{fields}");
        }
        let call = read_for(with("").as_bytes(), false).expect("valid");
        assert!(call.is_all_shown(), "streamed or not");
    }

    #[test]
    fn requests_that_are_not_valid_name_the_field() {
        for (fields, param) in [
            (r#","background":true"#, "background"),
            (r#","service_tier":"priority""#, "service_tier"),
            (r#","max_output_tokens":0"#, "max_output_tokens"),
            (r#","Stream":true"#, "Stream"),
            (r#","max_output_tokens":16385"#, "max_output_tokens"),
            (r#","tools":[{"type":"image_generation"}]"#, "tools"),
            (r#","moderation":{"model":"m"}"#, "moderation"),
        ] {
            let error = read(with(fields).as_bytes()).expect_err(fields);
            assert_eq!(error.param.as_deref(), Some(param), "{fields}");
        }
    }
}
