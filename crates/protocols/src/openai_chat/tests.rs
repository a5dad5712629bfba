use bytes::Bytes;

use super::*;
use crate::limits::{PassList, PricedFeatures};
use crate::metering;
use crate::pieces;
use crate::request_policy::TOOLS_TOKENS_MAX;
use tollgate_money::money::Nanousd;
use tollgate_money::price::UsageSource;

mod providers;

const REQUEST: &[u8] = include_bytes!("../../fixtures/openai_chat/request.json");
const RESPONSE: &[u8] = include_bytes!("../../fixtures/openai_chat/response.json");
const STREAM: &str = include_str!("../../fixtures/openai_chat/stream.sse");

/// Of a model for which the operator passes a field of the vendor's.
fn limits() -> ModelLimits {
    let pass = PassList { fields: vec!["x_vendor_option".to_owned()], ..PassList::default() };
    ModelLimits { input_tokens_max: 1000, output_tokens_max: 100, pass, ..ModelLimits::default() }
}

fn read(body: &[u8]) -> Result<Box<dyn Call>, GatewayError> {
    read_for(body, &limits())
}

fn read_for(body: &[u8], limits: &ModelLimits) -> Result<Box<dyn Call>, GatewayError> {
    let object = Object::parse(body).expect("JSON");
    OpenaiChat.read(&Request::Json(object), limits)
}

fn with(field: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{}}],{field}}}"#)
}

/// Relays a stream whole and in pieces of `size` bytes; both must give the same.
fn relay(stream: &str, options: &str, size: usize) -> (String, Box<dyn Meter>) {
    let body = with(&format!(r#""stream":true{options}"#));
    pieces::relay(read(body.as_bytes()).expect("valid").meter(Framing::Sse), stream, size)
}

#[test]
fn a_rename_changes_the_name_and_nothing_else() {
    let call = read(REQUEST).expect("valid");
    let body = Bytes::from_static(REQUEST);
    let renamed = call.splice("upstream-name").apply(&body);
    let expected =
        std::str::from_utf8(REQUEST).expect("text").replace("public-name", "upstream-name");
    assert_eq!(renamed, expected.as_bytes());
    assert_eq!(call.splice("public-name").apply(&body).as_ptr(), body.as_ptr(), "no copy");
    assert_eq!(call.max_usage().output_tokens, 64, "max_tokens bounds the output");
    assert_eq!(
        call.max_usage().input_tokens,
        1000,
        "nobody knows what the vendor's field stands for"
    );
}

#[test]
fn usage_is_requested_and_shown_only_on_the_customers_request() {
    for (options, expected) in [
        ("", r#","stream_options":{"include_usage":true}}"#),
        (r#","stream_options":null"#, r#""stream_options":{"include_usage":true}}"#),
        (r#","stream_options":{}"#, r#""stream_options":{"include_usage":true}}"#),
        (r#","stream_options":{"x":1}"#, r#""stream_options":{"x":1,"include_usage":true}}"#),
        (r#","stream_options":{"include_usage":false}"#, r#"{"include_usage":true}}"#),
    ] {
        let body = with(&format!(r#""stream":true{options}"#));
        let edited = read(body.as_bytes()).expect("valid").splice("m").apply(&body.into());
        let edited = String::from_utf8(edited.to_vec()).expect("text");
        assert!(edited.ends_with(expected), "{options}: {edited}");
        let (relayed, _) = relay(STREAM, options, 7);
        assert!(!relayed.contains(r#""choices":[]"#), "{options}: the usage chunk got through");
        assert!(relayed.ends_with("data: [DONE]\n\n"));
    }
    let (relayed, _) = relay(STREAM, r#","stream_options":{"include_usage":true}"#, 7);
    assert_eq!(relayed, STREAM, "who asks for usage gets the upstream's bytes");
}

#[test]
fn reported_usage_is_billed_in_disjoint_kinds() {
    let mut meter = read(REQUEST).expect("valid").meter(Framing::Json);
    for piece in RESPONSE.chunks(5) {
        assert_eq!(meter.relay(Bytes::copy_from_slice(piece)), piece);
    }
    let expected =
        Usage { input_tokens: 16, cache_read_tokens: 8, output_tokens: 9, ..Usage::ZERO };
    assert_eq!(meter.measure(), (expected, UsageSource::Upstream));
    let (_, meter) = relay(STREAM, "", STREAM.len());
    let expected = Usage { input_tokens: 24, output_tokens: 9, ..Usage::ZERO };
    assert_eq!(meter.measure(), (expected, UsageSource::Upstream));
    assert!(meter.is_complete());
}

#[test]
fn the_dialects_of_usage() {
    let parse = |text: &str| {
        WireChatUsage::report(text.as_bytes(), Unit::CacheWriteTokens).map(|report| report.usage)
    };
    let deepseek = parse(
        r#"{"prompt_tokens":10,"completion_tokens":2,"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":6}"#,
    );
    assert_eq!(deepseek.map(|usage| (usage.input_tokens, usage.cache_read_tokens)), Some((6, 4)));
    let qwen = parse(
        r#"{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cache_creation_input_tokens":3}}"#,
    );
    assert_eq!(qwen.map(|usage| (usage.input_tokens, usage.cache_write_tokens)), Some((7, 3)));
    let xai = parse(
        r#"{"prompt_tokens":10,"completion_tokens":2,"total_tokens":17,"completion_tokens_details":{"reasoning_tokens":5}}"#,
    );
    assert_eq!(xai.map(|usage| usage.output_tokens), Some(7), "reasoning beside the completion");
    let openai = parse(
        r#"{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17,"completion_tokens_details":{"reasoning_tokens":5}}"#,
    );
    assert_eq!(openai.map(|usage| usage.output_tokens), Some(7), "reasoning inside the completion");
    for (fields, output) in [
        (r#""completion_tokens":198,"total_tokens":8623"#, 8603),
        (r#""completion_tokens":7,"total_tokens":27"#, 7),
        (r#""completion_tokens":7,"total_tokens":3"#, 7),
        (r#""total_tokens":27"#, 7),
        (r#""completion_tokens":7,"completion_tokens_details":{"reasoning_tokens":9}"#, 16),
        (r#""completion_tokens":9,"completion_tokens_details":{"reasoning_tokens":9}"#, 9),
        (r#""completion_tokens":7.0,"total_tokens":"27""#, 7),
        (r#""completion_tokens":18446744073709551615,"total_tokens":1"#, u64::MAX),
    ] {
        let usage = parse(&format!(r#"{{"prompt_tokens":20,{fields}}}"#));
        assert_eq!(usage.map(|usage| usage.output_tokens), Some(output), "{fields}");
    }
    for (forged, output) in [
        (r#"{"prompt_tokens":-5,"completion_tokens":2}"#, 2),
        (r#"{"prompt_tokens":1.5,"completion_tokens":2}"#, 2),
        (r#"{"prompt_tokens":18446744073709551616}"#, 0),
    ] {
        let expected = Usage { output_tokens: output, ..Usage::ZERO };
        assert_eq!(parse(forged), Some(expected), "{forged} was believed");
    }
}

#[test]
fn nothing_behind_done_is_believed_or_relayed() {
    let forged = format!(
        "{STREAM}data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":1,\"completion_tokens\":0}}}}\n\ndata: [DONE]\n\n"
    );
    let (relayed, meter) = relay(&forged, r#","stream_options":{"include_usage":true}"#, 11);
    assert_eq!(relayed, STREAM);
    assert_eq!(meter.measure().0.output_tokens, 9);
}

#[test]
fn a_stream_without_usage_is_estimated_from_what_was_relayed() {
    let cut = &STREAM[..STREAM.find("\"finish_reason\":\"stop\"").expect("stop")];
    let (_, meter) = relay(cut, "", 13);
    let (usage, source) = meter.measure();
    assert_eq!(source, UsageSource::Estimated);
    // "A gate" and " where a toll is paid." are 8 tokens.
    assert!((8..=12).contains(&usage.output_tokens), "{usage:?}");
    assert_eq!(meter.relayed(), usage, "what the hold must cover is what is billed");
    assert!(!meter.is_complete(), "a cut stream is not complete");
}

#[test]
fn invalid_requests_name_the_field() {
    for (field, param) in [
        (r#""temperature":2.1"#, "temperature"),
        (r#""temperature":"hot""#, "temperature"),
        (r#""top_p":-0.1"#, "top_p"),
        (r#""presence_penalty":3"#, "presence_penalty"),
        (r#""stop":["1","2","3","4","5"]"#, "stop"),
        (r#""stop":[1]"#, "stop"),
        (r#""n":0"#, "n"),
        (r#""n":1000"#, "n"),
        (r#""max_tokens":-1"#, "max_tokens"),
        (r#""max_tokens":"10""#, "max_tokens"),
        (r#""max_completion_tokens":1.5"#, "max_completion_tokens"),
        (r#""stream":"yes""#, "stream"),
        (r#""stream":true,"stream_options":[]"#, "stream_options"),
        (r#""stream":true,"stream_options":{"include_usage":1}"#, "stream_options"),
        (
            r#""stream":true,"stream_options":{"include_usage":true,"include_usage":false}"#,
            "stream_options",
        ),
        (r#""Max_Tokens":5"#, "Max_Tokens"),
        (r#""max_tokens":101"#, "max_tokens"),
        (r#""max_completion_tokens":101"#, "max_completion_tokens"),
        (r#""max_to\u212aens":5"#, "max_to\u{212a}ens"),
        (r#""enable_thinking":true"#, "enable_thinking"),
    ] {
        let error = read(with(field).as_bytes()).expect_err(field);
        assert_eq!(error.param.as_deref(), Some(param), "{field}: {error}");
    }
    for body in
        [r#"{"model":"m"}"#, r#"{"model":"m","messages":[ ]}"#, r#"{"model":"m","messages":"x"}"#]
    {
        let error = read(body.as_bytes()).expect_err(body);
        assert_eq!(error.param.as_deref(), Some("messages"), "{body}");
    }
}

#[test]
fn the_hold_covers_choices_media_and_the_models_maximum() {
    let max_usage = |field: &str| read(with(field).as_bytes()).expect(field).max_usage();
    assert_eq!(max_usage(r#""n":3,"max_tokens":10"#).output_tokens, 30);
    assert_eq!(max_usage(r#""max_tokens":10,"max_completion_tokens":20"#).output_tokens, 20);
    let plain = r#""user":"a""#;
    assert_eq!(max_usage(plain).output_tokens, 100, "no more than the model can");
    assert_eq!(
        max_usage(plain).input_tokens,
        with(plain).len() as u64,
        "a token has a byte at least"
    );
    let tool = r#""tools":[{"type":"function","function":{"name":"f"}}]"#;
    assert_eq!(max_usage(tool).input_tokens, 1000.min(with(tool).len() as u64 + TOOLS_TOKENS_MAX));
    let prediction = r#""max_tokens":10,"prediction":"0123456789""#;
    assert_eq!(max_usage(prediction).output_tokens, 10 + 12, "what is predicted wrongly is output");
    let media = |part: &str| format!(r#"{{"model":"m","messages":[{{"content":[{part}]}}]}}"#);
    for part in [
        r#"{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}"#,
        r#"{"type":"\u0069mage_url","\u0069mage_url":{"url":"https://example.com/a.png"}}"#,
    ] {
        let held = read(media(part).as_bytes()).expect(part).max_usage().input_tokens;
        assert_eq!(held, 1000, "a picture's tokens are not in its URL: {part}");
    }
}

#[test]
fn a_budget_for_thinking_is_output_beside_max_tokens() {
    let fields = ["enable_thinking", "thinking_budget"].map(str::to_owned).to_vec();
    let limits = ModelLimits { pass: PassList { fields, ..PassList::default() }, ..limits() };
    let max_usage =
        |field: &str| read_for(with(field).as_bytes(), &limits).expect(field).max_usage();
    let fields = r#""max_tokens":16,"enable_thinking":true,"thinking_budget":38000"#;
    assert_eq!(max_usage(fields).output_tokens, 38_016);
    assert_eq!(max_usage(r#""max_tokens":16,"enable_thinking":true"#).output_tokens, 116);
    assert_eq!(max_usage(r#""max_tokens":16,"enable_thinking":false"#).output_tokens, 16);
}

#[test]
fn a_prompt_that_cannot_fit_is_refused_before_it_is_sent() {
    let prompt = |content: String| {
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":{content}}}]}}"#)
    };
    let long = prompt(format!("\"{}\"", "word ".repeat(1300)));
    let error = read(long.as_bytes()).expect_err("too long");
    assert_eq!(error.code, Some("context_length_exceeded"), "{error}");
    assert!(error.message.starts_with("prompt is too long: "), "{error}");
    assert!(read(prompt(format!("\"{}\"", "word ".repeat(900))).as_bytes()).is_ok());
    let picture = "A".repeat(9000);
    let part = format!(r#"[{{"type":"image_url","image_url":"data:image/png;base64,{picture}"}}]"#);
    assert!(read(prompt(part).as_bytes()).is_ok(), "bytes of a picture are no tokens");
}

#[test]
fn all_is_shown_of_a_plain_prompt_by_a_model_that_does_not_think() {
    let limits = ModelLimits { reasoning: false, ..limits() };
    let shown = |field: &str| {
        read_for(with(&format!(r#""stream":true{field}"#)).as_bytes(), &limits)
            .expect(field)
            .is_all_shown()
    };
    assert!(
        shown("") && shown(r#","n":2,"max_tokens":10"#) && shown(r#","reasoning_effort":"none""#)
    );
    for field in [
        r#","reasoning_effort":"low""#,
        r#","x_vendor_option":1"#,
        r#","prediction":{"type":"content","content":"x"}"#,
        r#","service_tier":"flex","x_vendor_option":true"#,
    ] {
        assert!(!shown(field), "{field}");
    }
    assert!(read_for(with(r#""user":"a""#).as_bytes(), &limits).expect("valid").is_all_shown());
    assert!(!read(with(r#""stream":true"#).as_bytes()).expect("valid").is_all_shown());
    let picture = r#"{"model":"m","stream":true,"messages":[{"content":[{"type":"image_url","image_url":"https://a/b"}]}]}"#;
    assert!(!read_for(picture.as_bytes(), &limits).expect("valid").is_all_shown());
}

const TEXT: &str = r#"{"choices":[{"index":0,"delta":{"content":"Hello, world"}}]}"#;
const FINISH: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

fn events(all: &[&str]) -> String {
    all.iter().map(|json| format!("data: {json}\n\n")).collect()
}

fn totals(prompt: u64, completion: u64) -> String {
    format!(
        r#"{{"choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion}}}}}"#
    )
}

#[test]
fn zeros_beside_text_are_no_report() {
    for (zeros, input) in [(totals(0, 0), None), (totals(24, 0), Some(24))] {
        let (_, meter) = relay(&events(&[TEXT, FINISH, &zeros, "[DONE]"]), "", 9);
        let (usage, source) = meter.measure();
        assert_eq!(source, UsageSource::Estimated, "{zeros}");
        assert!(usage.output_tokens >= 3 && usage.input_tokens >= input.unwrap_or(5), "{usage:?}");
        let answer = format!(
            r#"{{"choices":[{{"message":{{"content":"{}"}}}}],{}"#,
            "word ".repeat(30),
            zeros.split_once(',').expect("a usage").1
        );
        let mut meter = read(REQUEST).expect("valid").meter(Framing::Json);
        meter.relay(Bytes::from(answer));
        let (usage, source) = meter.measure();
        assert_eq!(source, UsageSource::Estimated, "{zeros}");
        assert!(usage.output_tokens >= 30, "{usage:?}");
    }
    let (_, meter) = relay(&events(&[FINISH, &totals(24, 0), "[DONE]"]), "", 9);
    assert_eq!(meter.measure().1, UsageSource::Upstream, "nothing was shown");
}

#[test]
fn a_report_above_the_limits_is_charged_and_flagged() {
    for (prompt, completion, is_above) in [(1000, 100, false), (1001, 100, true), (1, 101, true)] {
        let report = totals(prompt, completion);
        let (_, meter) = relay(&events(&[TEXT, FINISH, &report, "[DONE]"]), "", 9);
        let expected = Usage { input_tokens: prompt, output_tokens: completion, ..Usage::ZERO };
        assert_eq!(meter.measure(), (expected, UsageSource::Upstream));
        assert_eq!(meter.is_above_limits(), is_above, "{report}");
        let mut meter = read(REQUEST).expect("valid").meter(Framing::Json);
        meter.relay(Bytes::from(report));
        assert_eq!(meter.measure(), (expected, UsageSource::Upstream));
        assert_eq!(meter.is_above_limits(), is_above);
    }
}

#[test]
fn of_several_reports_the_dearest_counts() {
    let (small, large) = (totals(10, 2), totals(24, 9));
    let expected = Usage { input_tokens: 24, output_tokens: 9, ..Usage::ZERO };
    for order in [[&small, &large], [&large, &small]] {
        let stream = events(&[TEXT, FINISH, order[0], order[1], "[DONE]"]);
        for size in [1, 7, stream.len()] {
            let (_, meter) = relay(&stream, "", size);
            assert_eq!(meter.measure(), (expected, UsageSource::Upstream));
        }
        let twice = format!(
            r#"{{"usage":{},"usage":{}}}"#,
            r#"{"prompt_tokens":10,"completion_tokens":9}"#,
            r#"{"prompt_tokens":24,"completion_tokens":2}"#
        );
        let mut meter = read(REQUEST).expect("valid").meter(Framing::Json);
        meter.relay(Bytes::from(twice));
        assert_eq!(meter.measure(), (expected, UsageSource::Upstream));
    }
    let chatty = TEXT
        .replace(r#""choices""#, r#""usage":{"prompt_tokens":24,"completion_tokens":1},"choices""#);
    let (_, meter) = relay(&events(&[&chatty, TEXT, TEXT]), "", 9);
    let (usage, source) = meter.measure();
    assert_eq!(
        (source, usage.input_tokens),
        (UsageSource::Estimated, 24),
        "more text came behind it"
    );
    assert!(usage.output_tokens >= 9, "{usage:?}");
}

#[test]
fn an_error_that_reports_zeros_has_failed() {
    let failed = r#"{"error":{"message":"no"},"usage":{"prompt_tokens":0,"completion_tokens":0}}"#;
    let (_, meter) = relay(&events(&[failed]), "", 9);
    assert!(meter.has_failed());
    let mut meter = read(REQUEST).expect("valid").meter(Framing::Json);
    meter.relay(Bytes::from(failed));
    assert!(meter.has_failed());
}

#[test]
fn usage_is_the_same_read_in_one_pass_and_by_a_parser() {
    let usage = |text: &str, is_plain: bool| {
        let by_parser = metering::read_wire::<WireChatUsage>(text.as_bytes());
        let in_one_pass = WireChatUsage::plain(text.as_bytes());
        assert_eq!(in_one_pass.is_some(), is_plain, "{text}");
        let reports = [in_one_pass, by_parser]
            .map(|usage| usage.map(|usage| usage.to_report(Unit::CacheWriteTokens)));
        assert!(!is_plain || reports[0] == reports[1], "{text}: {reports:?}");
    };
    for key in ["cached_tokens", "cache_write_tokens", "cache_creation_input_tokens"] {
        let details = format!(r#"{{"audio_tokens":0,"{key}":3}}"#);
        usage(
            &format!(
                r#"{{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,
                "prompt_tokens_details":{details},"completion_tokens_details":null}}"#
            ),
            true,
        );
    }
    let others = r#""prompt_tokens":10,"completion_tokens":2,"total_tokens":17"#;
    for more in [
        r#""completion_tokens_details":{"reasoning_tokens":5,"audio_tokens":0}"#,
        r#""prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":6"#,
        r#""num_sources_used":0"#,
    ] {
        usage(&format!("{{{others},{more}}}"), true);
    }
    for odd in [r#""prompt_tokens":1"#, r#""x":[]"#, r#""prompt_tokens_details":7"#, r#""y":1.5"#] {
        usage(&format!("{{{others},{odd}}}"), false);
    }
}

#[test]
fn what_an_upstream_says_that_an_answer_costs_is_read() {
    for (usage, nano) in [
        (r#"{"prompt_tokens":5,"completion_tokens":1,"cost":0.00014}"#, Some(140_000)),
        (r#"{"prompt_tokens":5,"completion_tokens":1,"cost":1.5e-7}"#, Some(150)),
        (r#"{"prompt_tokens":5,"completion_tokens":1,"cost_in_usd_ticks":37756}"#, Some(3776)),
        (r#"{"prompt_tokens":5,"completion_tokens":1,"cost":0}"#, Some(0)),
        (r#"{"prompt_tokens":5,"completion_tokens":1,"cost":null}"#, None),
        // What is no amount takes nothing of what is to be charged.
        (r#"{"prompt_tokens":5,"completion_tokens":1,"cost":-0.5}"#, None),
        (r#"{"prompt_tokens":5,"completion_tokens":1,"cost":"free"}"#, None),
        (r#"{"prompt_tokens":5,"completion_tokens":1,"cost":{"total":1}}"#, None),
        (r#"{"prompt_tokens":5,"completion_tokens":1,"cost":9e99}"#, None),
        (r#"{"prompt_tokens":5,"completion_tokens":1,"cost_in_usd_ticks":-7}"#, None),
        (r#"{"prompt_tokens":5,"completion_tokens":1,"cost_in_usd_ticks":1.5}"#, None),
        (r#"{"prompt_tokens":5,"completion_tokens":1}"#, None),
        // A key of the operator's own has paid the provider behind OpenRouter.
        (
            r#"{"prompt_tokens":5,"completion_tokens":1,"cost":0,"is_byok":true,"cost_details":{"upstream_inference_cost":0.0360795}}"#,
            Some(36_079_500),
        ),
        (
            r#"{"prompt_tokens":5,"completion_tokens":1,"cost":0.001,"is_byok":true,"cost_details":{"upstream_inference_cost":null,"upstream_inference_prompt_cost":0.02,"upstream_inference_completions_cost":0.03}}"#,
            Some(51_000_000),
        ),
        (
            r#"{"prompt_tokens":5,"completion_tokens":1,"cost":0.001,"is_byok":false,"cost_details":{"upstream_inference_cost":0.02}}"#,
            Some(1_000_000),
        ),
        (
            r#"{"prompt_tokens":5,"completion_tokens":1,"cost":0.001,"cost_details":{"upstream_inference_cost":0.02}}"#,
            Some(1_000_000),
        ),
        (
            r#"{"prompt_tokens":5,"completion_tokens":1,"cost":0.001,"is_byok":true,"cost_details":{"upstream_inference_cost":-2}}"#,
            Some(1_000_000),
        ),
    ] {
        let report = WireChatUsage::report(usage.as_bytes(), Unit::CacheWriteTokens).expect(usage);
        assert_eq!(report.cost, nano.map(Nanousd::new), "{usage}");
        assert_eq!((report.usage.input_tokens, report.usage.output_tokens), (5, 1), "{usage}");
    }
}

/// Of a model that thinks unasked and reports no tokens of it, what it shows tells.
#[test]
fn thoughts_that_are_shown_decide_on_the_price_where_no_tokens_of_them_are_reported() {
    let priced = PricedFeatures { thinking: true, ..PricedFeatures::default() };
    let limits = ModelLimits {
        input_tokens_max: 1000,
        output_tokens_max: 100,
        priced,
        ..ModelLimits::default()
    };
    let request = br#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let body = Object::parse(request).expect("JSON");
    let call = OpenaiChat.read(&Request::Json(body), &limits).expect("valid");
    let thinks = |message: &str, details: &str, framing: Framing, size: usize| {
        let usage = format!(r#"{{"prompt_tokens":5,"completion_tokens":9{details}}}"#);
        let answer = match framing {
            Framing::Sse => format!(
                "data: {{\"choices\":[{{\"delta\":{message},\"finish_reason\":\"stop\"}}]}}\n\n\
                 data: {{\"choices\":[],\"usage\":{usage}}}\n\ndata: [DONE]\n\n"
            ),
            _ => format!(r#"{{"id":"c","choices":[{{"message":{message}}}],"usage":{usage}}}"#),
        };
        let (_, meter) = pieces::relay(call.meter(framing), &answer, size);
        meter.served().thinking
    };
    let expected =
        |tokens: u64| format!(r#","completion_tokens_details":{{"reasoning_tokens":{tokens}}}"#);
    for (message, details, expected) in [
        (r#"{"reasoning_content":"well","content":"x"}"#, String::new(), Some(true)),
        (r#"{"content":"x", "reasoning" : "\u0077ell"}"#, String::new(), Some(true)),
        (r#"{"reasoning_content":"","reasoning":null,"content":"x"}"#, String::new(), None),
        (r#"{"content":"{\"reasoning_content\":\"no\"}"}"#, String::new(), None),
        (r#"{"content":"x"}"#, expected(7), Some(true)),
        (r#"{"reasoning_content":"well","content":"x"}"#, expected(0), Some(false)),
    ] {
        for framing in [Framing::Json, Framing::Sse] {
            for size in [1, 7, 1000] {
                let found = thinks(message, &details, framing, size);
                assert_eq!(found, expected, "{message} {details} {framing:?} by {size}");
            }
        }
    }
}

#[test]
fn an_answer_without_usage_is_estimated_unless_the_customer_asks_for_what_is_not_seen() {
    let estimates = |fields: &str, limits: &ModelLimits| {
        read_for(with(fields).as_bytes(), limits).expect(fields).estimates_unreported()
    };
    let limits = ModelLimits { pass: PassList::default(), ..limits() };
    for fields in [
        r#""stop":null"#,
        r#""max_tokens":9"#,
        r#""reasoning_effort":"none""#,
        r#""tools":[{"type":"function","function":{"name":"f"}}]"#,
        r#""stream":true,"stream_options":{"include_usage":false}"#,
    ] {
        assert!(estimates(fields, &limits), "{fields}");
    }
    for fields in [
        r#""stop":"x""#,
        r#""reasoning_effort":"high""#,
        r#""prediction":{"type":"content","content":"x"}"#,
    ] {
        assert!(!estimates(fields, &limits), "{fields}");
    }
    let picture =
        br#"{"model":"m","messages":[{"content":[{"type":"image_url","image_url":{"url":"x"}}]}]}"#;
    assert!(!read_for(picture, &limits).expect("valid").estimates_unreported());
    let max_usage = ModelLimits { missing_usage: MissingUsage::Bound, ..limits };
    assert!(!estimates(r#""max_tokens":9"#, &max_usage));
}

#[test]
fn an_answer_that_ends_at_its_most_output_or_was_not_read_hides_some() {
    let chunk = |reason: &str| {
        format!(r#"{{"choices":[{{"delta":{{"content":"x"}},"finish_reason":{reason}}}]}}"#)
    };
    let giant = format!(r#"{{"choices":[],"x":"{}"}}"#, "x".repeat(2 * 1024 * 1024));
    for (events_of, expected) in [
        (vec![chunk("\"stop\""), "[DONE]".to_owned()], false),
        (vec![chunk("\"tool_calls\""), "[DONE]".to_owned()], false),
        (vec![chunk("\"length\""), "[DONE]".to_owned()], true),
        (vec![chunk("\"stop\""), giant, "[DONE]".to_owned()], true),
    ] {
        let events_of: Vec<&str> = events_of.iter().map(String::as_str).collect();
        let mut meter =
            read(with(r#""stream":true"#).as_bytes()).expect("valid").meter(Framing::Sse);
        // An event that comes at once is never too long.
        for piece in events(&events_of).as_bytes().chunks(8192) {
            meter.relay(Bytes::copy_from_slice(piece));
        }
        assert_eq!(meter.hides_output(), expected, "{}", events_of[0]);
    }
    for (reason, expected) in [("stop", false), ("length", true)] {
        let document = format!(
            r#"{{"choices":[{{"message":{{"content":"length"}},"finish_reason":"{reason}"}}]}}"#
        );
        for size in [1, 7, document.len()] {
            let mut meter = read(REQUEST).expect("valid").meter(Framing::Json);
            for piece in document.as_bytes().chunks(size) {
                meter.relay(Bytes::copy_from_slice(piece));
            }
            assert_eq!(meter.hides_output(), expected, "{document}");
        }
    }
}
