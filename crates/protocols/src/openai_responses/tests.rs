use bytes::Bytes;

use super::*;
use crate::limits::{PassList, PricedFeatures};
use crate::pieces;
use crate::request_policy::TOOLS_TOKENS_MAX;
use tollgate_money::money::Nanousd;
use tollgate_money::price::UsageSource;

const REQUEST: &[u8] = include_bytes!("../../fixtures/openai_responses/request.json");
const RESPONSE: &str = include_str!("../../fixtures/openai_responses/response.json");
const STREAM: &str = include_str!("../../fixtures/openai_responses/stream.sse");
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
            assert_eq!(meter.measure(), (expected, UsageSource::Upstream), "{framing:?} {size}");
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
    assert_eq!(meter.measure(), (Usage { output_tokens: 6, ..min_usage }, UsageSource::Estimated));
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
        (r#"{"input_tokens":4,"output_tokens":5,"total_tokens":29}"#, 25, UsageSource::Upstream),
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
        let event = format!(r#"{{"type":"response.completed","response":{{"usage":{usage}}}}}"#)
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
        let event = format!(r#"{{"type":"response.completed","response":{{"usage":{usage}}}}}"#);
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
        let pass = PassList { tools: vec!["image_generation*".to_owned()], ..PassList::default() };
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
    let done =
        format!("event: x\ndata: {{\"type\":\"response.output_item.done\",\"item\":{item}}}\n\n");
    let ended = |items: &str| {
        let response =
            format!(r#"{{"output":[{items}],"usage":{{"input_tokens":4,"output_tokens":5}}}}"#);
        format!("event: x\ndata: {{\"type\":\"response.completed\",\"response\":{response}}}\n\n")
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
