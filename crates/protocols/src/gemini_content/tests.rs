use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::limits::{PassList, PricedFeatures};
use tollgate_money::price::{ServiceTier, UsageSource};

fn limits() -> ModelLimits {
    ModelLimits { input_tokens_max: 1000, output_tokens_max: 500, ..ModelLimits::default() }
}

fn read_with(body: &str, limits: &ModelLimits) -> Result<Box<dyn Call>, GatewayError> {
    let object = Object::parse(body.as_bytes()).expect("JSON");
    let named = ModelInPath { model: "m", streams: false };
    GeminiContent.read(&Request::JsonAt(object, named), limits)
}

fn read(fields: &str) -> Result<Box<dyn Call>, GatewayError> {
    let fields = if fields.is_empty() { String::new() } else { format!(",{fields}") };
    let body = format!(r#"{{"contents":[{{"role":"user","parts":[{{"text":"hi"}}]}}]{fields}}}"#);
    read_with(&body, &limits())
}

fn parts(part: &str) -> Result<Box<dyn Call>, GatewayError> {
    read_with(&format!(r#"{{"contents":[{{"parts":[{{"text":"a"}},{part}]}}]}}"#), &limits())
}

fn refused(call: Result<Box<dyn Call>, GatewayError>) -> String {
    let error = call.expect_err("refused");
    format!("{}: {}", error.param.as_deref().unwrap_or_default(), error.message)
}

#[test]
fn names_of_models_stay_in_their_place_of_the_path() {
    let path = |model: &str, streams| {
        let dialect = Dialect::Gemini;
        let path = GeminiContent.path_to(&PathVariables { dialect, model, streams });
        path.unwrap_or_default().into_owned()
    };
    assert_eq!(path("gemini-2.5-pro", false), "/models/gemini-2.5-pro:generateContent");
    let events = "/models/gemini-2.5-pro:streamGenerateContent?alt=sse";
    assert_eq!(path("gemini-2.5-pro", true), events);
    for name in ["../../v1/x", "a?key=b#", "é%2F..%2F", "a//b"] {
        assert_eq!(path(name, false), "", "{name} leads elsewhere");
    }
    for name in ["tuned/x", "a:countTokens", "a b", "é%41"] {
        let path = path(name, false);
        let inner =
            path.strip_prefix("/models/").and_then(|it| it.strip_suffix(":generateContent"));
        let inner = inner.expect("in its place");
        assert!(!inner.contains(['/', '?', '#', ':', ' ']), "{name}: {path}");
        let back = percent_encoding::percent_decode_str(inner).decode_utf8().expect("UTF-8");
        assert_eq!(back, name);
    }
}

#[test]
fn the_hold_is_the_most_that_a_request_can_cost() {
    let max_usage = |fields: &str| read(fields).expect(fields).max_usage();
    let plain = max_usage("");
    assert!(plain.input_tokens < 100, "by its bytes: {plain:?}");
    assert_eq!(plain.output_tokens, 500, "the model's limit");
    assert_eq!(max_usage(r#""generationConfig":{"maxOutputTokens":7}"#).output_tokens, 7);
    let both = r#""generation_config":{"max_output_tokens":7,"candidate_count":3}"#;
    assert_eq!(max_usage(both).output_tokens, 21);
    for part in [
        r#"{"inlineData":{"mimeType":"image/png","data":"AA"}}"#,
        r#"{"inline_data":{"mime_type":"image/png","data":"AA"}}"#,
        r#"{"\u0069nlineData":{}}"#,
        r#"{"fileData":{"fileUri":"https://youtu.be/x"}}"#,
        r#"{"unheardOf":{}}"#,
        r#"{"functionResponse":{"name":"f","response":{},"parts":[{"inlineData":{}}]}}"#,
    ] {
        let call = parts(part).expect(part);
        assert_eq!(call.max_usage().input_tokens, 1000, "{part}");
        assert!(call.input_ways().has_media, "{part}");
    }
    let code = read(r#""tools":[{"codeExecution":{}}]"#).expect("billed by its tokens");
    assert_eq!(code.max_usage().input_tokens, 10_000, "ten rounds");
}

#[test]
fn what_has_no_price_is_refused_by_name() {
    for (fields, expected) in [
        (r#""cachedContent":"cachedContents/x""#, "cachedContent: "),
        (r#""unheardOf":1"#, "unheardOf: "),
        (r#""tools":[{"googleSearch":{}}]"#, "`per_1k_web_searches`"),
        (r#""tools":[{"functionDeclarations":[],"google_search":{}}]"#, "`per_1k_web_searches`"),
        (r#""tools":[{"googleMaps":{}}]"#, "the tool `googleMaps`"),
        (r#""tools":[{"googleSearch":{},"codeExecution":{}}]"#, "a tool without a known"),
        (r#""tools":{"googleSearch":{}}"#, "tools: "),
        (r#""generationConfig":{"responseModalities":["IMAGE"]}"#, "generationConfig.responseM"),
        (r#""generationConfig":{"speechConfig":{}}"#, "generationConfig.speechConfig: "),
        (r#""generationConfig":{"candidateCount":9}"#, "generationConfig.candidateCount: "),
        (r#""generationConfig":{"maxOutputTokens":501}"#, "generationConfig.maxOutputTokens: "),
        (r#""generationConfig":{"maxOutputTokens":"9"}"#, "generationConfig.maxOutputTokens: "),
        (
            r#""generationConfig":{"maxOutputTokens":1,"max_output_tokens":500}"#,
            "maxOutputTokens: ",
        ),
        (r#""generationConfig":{},"generation_config":{}"#, "generationConfig: "),
    ] {
        let message = refused(read(fields));
        assert!(message.contains(expected), "{fields}: {message}");
    }
    for uri in [
        "gs://bucket/o",
        "https://generativelanguage.googleapis.com/v1beta/files/x",
        "https://storage.googleapis.com/b/o",
        "https://STORAGE.cloud.google.com./b/o",
        "https://10.0.0.1/o",
        "files/x",
    ] {
        let message = refused(parts(&format!(r#"{{"fileData":{{"fileUri":"{uri}"}}}}"#)));
        assert!(message.contains("`fileData`"), "{uri}: {message}");
    }
    let pass = PassList { content: vec!["fileData".to_owned()], ..PassList::default() };
    let passed = ModelLimits { pass, ..limits() };
    let body = r#"{"contents":[{"parts":[{"fileData":{"fileUri":"gs://b/o"}}]}]}"#;
    assert!(read_with(body, &passed).is_ok(), "the operator lets it through");
}

fn measured(body: &Value) -> (Usage, UsageSource) {
    let mut meter = read("").expect("valid").meter(Framing::Json);
    meter.relay(body.to_string().into());
    meter.finish();
    assert!(meter.is_complete());
    meter.measure()
}

#[test]
fn usage_is_taken_apart_into_what_has_prices() {
    let usage = |usage: Value| measured(&json!({"candidates": [], "usageMetadata": usage}));
    let (counted, source) = usage(json!({
        "promptTokenCount": 100, "cachedContentTokenCount": 40, "candidatesTokenCount": 7,
        "thoughtsTokenCount": 5, "toolUsePromptTokenCount": 11, "totalTokenCount": 123,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 50},
            {"modality": "AUDIO", "tokenCount": 30}, {"modality": "IMAGE", "tokenCount": 12},
            {"modality": "VIDEO", "tokenCount": 8}],
        "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 10}],
    }));
    let expected = Usage {
        input_tokens: 31,
        audio_input_tokens: 20,
        image_input_tokens: 12,
        video_input_tokens: 8,
        cache_read_tokens: 40,
        output_tokens: 12,
        ..Usage::ZERO
    };
    assert_eq!((counted, source), (expected, UsageSource::Upstream));
    assert_eq!(counted.input_tokens_total(), 111, "prompt and tools, and nothing twice");
    let (hidden, _) = usage(json!({"promptTokenCount": 10, "candidatesTokenCount": 1,
        "totalTokenCount": 30}));
    assert_eq!(hidden.output_tokens, 20, "what the total has beside the prompt");
}

/// Streams with a search of Google's, as its documents show them.
fn stream() -> String {
    let chunk = |parts: Value, more: Value| {
        let mut chunk = json!({"candidates": [{"content": {"role": "model", "parts": parts}}],
            "responseId": "r"});
        if let (Some(chunk), Value::Object(more)) = (chunk.as_object_mut(), more) {
            chunk.extend(more);
        }
        format!("data: {chunk}\r\n\r\n")
    };
    let usage = |content_tokens: u64, thought: u64| {
        json!({"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": content_tokens,
            "thoughtsTokenCount": thought, "totalTokenCount": 9 + content_tokens + thought}})
    };
    let last = json!({"candidates": [{"content": {"parts": []}, "finishReason": "STOP",
        "groundingMetadata": {"webSearchQueries": ["a", "b"]}}],
        "usageMetadata": usage(8, 20)["usageMetadata"]});
    [
        chunk(json!([{"text": "Hm.", "thought": true}]), usage(0, 20)),
        chunk(json!([{"text": "Hello there, "}]), usage(4, 20)),
        chunk(json!([{"text": "you."}]), Value::Null),
        format!("data: {last}\r\n\r\n"),
    ]
    .concat()
}

fn priced() -> ModelLimits {
    let priced = PricedFeatures { units: vec![Unit::WebSearches], ..PricedFeatures::default() };
    ModelLimits { priced, ..limits() }
}

fn meter_of_search(framing: Framing) -> Box<dyn Meter> {
    let body = r#"{"contents":[],"tools":[{"googleSearch":{}}]}"#;
    read_with(body, &priced()).expect("it has a price").meter(framing)
}

proptest! {
    #[test]
    fn a_stream_is_counted_however_it_is_cut(cuts in prop::collection::vec(0..900_usize, 0..6)) {
        let text = stream();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut meter = meter_of_search(Framing::Sse);
        let mut relayed = Vec::new();
        for pair in cuts.windows(2) {
            let piece = Bytes::copy_from_slice(&text.as_bytes()[pair[0]..pair[1]]);
            relayed.extend_from_slice(&meter.relay(piece));
        }
        relayed.extend_from_slice(&meter.finish());
        // A line end that is cut through is completed.
        let relayed = String::from_utf8(relayed).expect("text");
        prop_assert_eq!(relayed.trim_end(), text.trim_end());
        let expected =
            Usage { input_tokens: 9, output_tokens: 28, web_searches: 2, ..Usage::ZERO };
        prop_assert_eq!(meter.measure(), (expected, UsageSource::Upstream));
        prop_assert!(meter.is_complete() && !meter.has_failed());
    }
}

#[test]
fn a_stream_that_breaks_off_is_counted_as_far_as_it_came() {
    let text = stream();
    let events: Vec<&str> = text.split_inclusive("\r\n\r\n").collect();
    let mut meter = meter_of_search(Framing::Sse);
    meter.relay(Bytes::copy_from_slice(events[..3].concat().as_bytes()));
    assert!(!meter.is_complete());
    let (usage, source) = meter.measure();
    assert_eq!((usage.input_tokens, source), (9, UsageSource::Estimated));
    assert!(usage.output_tokens >= 24, "what was reported: {usage:?}");
    let failed = "data: {\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}\r\n\r\n";
    meter.relay(Bytes::from_static(failed.as_bytes()));
    assert!(meter.is_complete(), "it says that it failed");
}

#[test]
fn searches_of_a_document_are_counted_and_blocked_prompts_cost_their_input() {
    let mut meter = meter_of_search(Framing::Json);
    let body = json!({"candidates": [{"content": {"parts": [{"text": "x".repeat(100_000)}]},
        "groundingMetadata": {"webSearchQueries": ["a", "b", "c"]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2}});
    meter.relay(body.to_string().into());
    assert_eq!(meter.measure().0.web_searches, 3, "behind however long a text");
    let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"},
        "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9}});
    let (usage, source) = measured(&blocked);
    assert_eq!((usage.input_tokens, usage.output_tokens, source), (9, 0, UsageSource::Upstream));
}

#[test]
fn a_refusal_of_the_operators_key_stays_hidden() {
    let call = read("").expect("valid");
    let body = br#"{"error":{"code":400,"details":[{"reason":"API_KEY_INVALID"}]}}"#;
    assert_eq!(call.refusal(400, None, body).map(|error| error.kind), Some(ErrorKind::BadGateway));
    assert!(call.refusal(400, None, br#"{"error":{"code":400}}"#).is_none());
}

#[test]
fn counts_name_the_model_as_the_upstream_knows_it() {
    let body = r#"{"generateContentRequest":{"model":"models/mine","contents":[]}}"#;
    let object = Object::parse(body.as_bytes()).expect("JSON");
    let named = ModelInPath { model: "mine", streams: false };
    let call = GeminiCountTokens.read(&Request::JsonAt(object, named), &limits()).expect("valid");
    let edited = call.splice("gemini-2.5-pro").apply(&Bytes::from_static(body.as_bytes()));
    let expected = body.replace("models/mine", "models/gemini-2.5-pro");
    assert_eq!(std::str::from_utf8(&edited), Ok(expected.as_str()));
    assert!(call.local_answer().is_some_and(|answer| answer.starts_with(b"{\"totalTokens\":")));
}

#[test]
fn a_tier_needs_a_price_and_counts_as_it_was_served() {
    let priced =
        PricedFeatures { words: vec![("service_tier", "priority")], ..PricedFeatures::default() };
    let priced = ModelLimits { priced, ..limits() };
    for spelling in ["serviceTier", "service_tier"] {
        let body = |tier: &str| format!(r#"{{"contents":[{{"parts":[]}}],"{spelling}":"{tier}"}}"#);
        assert!(read_with(&body("standard"), &limits()).is_ok(), "the usual one");
        let error = refused(read_with(&body("priority"), &limits()));
        assert!(error.contains(spelling), "{error}");
        let call = read_with(&body("priority"), &priced).expect("it has a price");
        assert_eq!(call.traits().service_tier, Some(ServiceTier::Priority), "{spelling}");
        for (traffic, served) in [
            ("ON_DEMAND", Some(ServiceTier::Default)),
            ("ON_DEMAND_PRIORITY", Some(ServiceTier::Priority)),
            ("ON_DEMAND_FLEX", Some(ServiceTier::Flex)),
            ("PROVISIONED_THROUGHPUT", None),
        ] {
            let usage = json!({"promptTokenCount": 4, "trafficType": traffic});
            let answer = json!({"candidates": [], "usageMetadata": usage}).to_string();
            let mut meter = call.meter(Framing::Json);
            meter.relay(Bytes::from(answer));
            assert_eq!(meter.served().service_tier, served, "{traffic}");
        }
    }
}
