use std::hash::{BuildHasher as _, RandomState};

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::json;

use super::*;
use crate::limits::{PassList, PricedFeatures};
use tollgate_money::money::Nanousd;
use tollgate_money::price::UsageSource;

const REQUEST: &[u8] = include_bytes!("../../fixtures/openai_rerank/request.json");
const COHERE: &str = include_str!("../../fixtures/openai_rerank/cohere.json");
const JINA: &str = include_str!("../../fixtures/openai_rerank/jina.json");
const ERROR: &str = include_str!("../../fixtures/openai_rerank/error.json");
const VOYAGE: &str = include_str!("../../fixtures/voyage_rerank/response.json");

fn limits() -> ModelLimits {
    priced(&[Unit::InputTokens, Unit::RerankUnits])
}

fn priced(units: &[Unit]) -> ModelLimits {
    let priced = PricedFeatures { units: units.to_vec(), ..PricedFeatures::default() };
    ModelLimits { priced, documents_max: 10_000, ..ModelLimits::default() }
}

fn read_by(body: &[u8], limits: &ModelLimits) -> Result<Box<dyn Call>, GatewayError> {
    OpenaiRerank.read(&Request::Json(Object::parse(body).expect("JSON")), limits)
}

fn max_usage(query: &str, documents: &serde_json::Value) -> Usage {
    let body = json!({"model": "m", "query": query, "documents": documents}).to_string();
    read_by(body.as_bytes(), &limits()).expect("valid").max_usage()
}

fn relay(limits: &ModelLimits, answer: &str) -> (Vec<u8>, Box<dyn Meter>) {
    let mut meter = read_by(REQUEST, limits).expect("valid").meter(Framing::Json);
    let mut out = Vec::new();
    for piece in answer.as_bytes().chunks(9) {
        out.extend_from_slice(&meter.relay(Bytes::copy_from_slice(piece)));
    }
    out.extend_from_slice(&meter.finish());
    (out, meter)
}

fn used(input_tokens: u64, rerank_units: u64) -> Usage {
    Usage { input_tokens, rerank_units, ..Usage::ZERO }
}

#[test]
fn bodies_stay_as_they_are_but_for_the_models_name() {
    let call = read_by(REQUEST, &limits()).expect("valid");
    let sent = call.splice("upstream-name").apply(&Bytes::from_static(REQUEST));
    let expected = String::from_utf8_lossy(REQUEST).replace("public-name", "upstream-name");
    assert_eq!(String::from_utf8_lossy(&sent), expected);
    for answer in [COHERE, JINA, ERROR] {
        let (out, meter) = relay(&limits(), answer);
        assert_eq!(String::from_utf8_lossy(&out), answer);
        assert!(meter.is_complete() && !meter.changes_length() && meter.held_bytes() == 0);
    }
}

#[test]
fn what_is_reported_is_counted_by_each_providers_words() {
    let (tokens, units) = (&[Unit::InputTokens][..], &[Unit::RerankUnits][..]);
    for (sold, answer, expected) in [
        (units, COHERE, used(0, 1)),
        (tokens, JINA, used(27, 0)),
        (tokens, r#"{"results":[{}],"usage":{"prompt_tokens":9,"total_tokens":11}}"#, used(11, 0)),
        (tokens, r#"{"results":[{}],"usage":{"total_tokens":"11"}}"#, used(11, 0)),
        (
            tokens,
            r#"{"results":[{}],"meta":{"tokens":{"input_tokens":38,"output_tokens":0}}}"#,
            used(38, 0),
        ),
        (
            tokens,
            r#"{"results":[{}],"meta":{"billed_units":{"input_tokens":38,"search_units":0}}}"#,
            used(38, 0),
        ),
        (units, r#"{"results":[{}],"meta":{"billed_units":{"search_units":3.0}}}"#, used(0, 3)),
        (units, r#"{"results":[{}],"usage":{"search_units":2,"total_tokens":70}}"#, used(70, 2)),
        // Two parsers could read either: the dearer counts.
        (
            units,
            r#"{"meta":{"billed_units":{"search_units":7}},"results":[],"meta":{"billed_units":{"search_units":2}}}"#,
            used(0, 7),
        ),
        (tokens, r#"{"usage":{"total_tokens":5},"usage":{"total_tokens":4}}"#, used(5, 0)),
    ] {
        let (_, meter) = relay(&priced(sold), answer);
        assert_eq!(meter.measure(), (expected, UsageSource::Upstream), "{answer}");
    }
}

#[test]
fn openrouters_reported_cost_is_read() {
    let answer = r#"{"results":[{}],"usage":{"cost":0.0025,"search_units":1,"total_tokens":0}}"#;
    let (_, meter) = relay(&priced(&[Unit::RerankUnits]), answer);
    assert_eq!(meter.measure(), (used(0, 1), UsageSource::Upstream));
    assert_eq!(meter.reported_cost(), Some(Nanousd::new(2_500_000)));
    assert_eq!(relay(&limits(), JINA).1.reported_cost(), None);
}

#[test]
fn what_is_billed_and_not_reported_is_estimated() {
    let both = [Unit::InputTokens, Unit::RerankUnits];
    for (sold, answer, tokens, units) in [
        (&both[..1], COHERE, None, 1),
        (&both[1..], JINA, Some(27), 1),
        (&both, JINA, Some(27), 1),
        (&both, r#"{"results":[{}]}"#, None, 1),
        (&both[..1], r#"{"results":[{}],"usage":{"total_tokens":0}}"#, None, 0),
        (&both[..1], r#"{"results":[{}],"usage":{"total_tokens":-7}}"#, None, 0),
        (&[], r#"{"results":[{}]}"#, None, 0),
    ] {
        let (usage, source) = relay(&priced(sold), answer).1.measure();
        assert_eq!((source, usage.rerank_units), (UsageSource::Estimated, units), "{answer}");
        let about = 2 * 5 + 4 + 6;
        match tokens {
            Some(tokens) => assert_eq!(usage.input_tokens, tokens, "{answer}"),
            None => assert!((about / 2..=about * 2).contains(&usage.input_tokens), "{usage:?}"),
        }
    }
    let nothing_is_priced = relay(&priced(&[]), COHERE).1.measure();
    assert_eq!(nothing_is_priced, (used(0, 1), UsageSource::Upstream));
}

#[test]
fn a_report_is_believed_however_large() {
    let limits = ModelLimits { input_tokens_max: 50, ..limits() };
    for (tokens, is_above) in [(100, false), (101, true), (9_999_999, true)] {
        let answer = format!(
            r#"{{"results":[],"usage":{{"total_tokens":{tokens}}},
                 "meta":{{"billed_units":{{"search_units":900}}}}}}"#
        );
        let (_, meter) = relay(&limits, &answer);
        assert_eq!(meter.measure(), (used(tokens, 900), UsageSource::Upstream));
        assert_eq!(meter.is_above_limits(), is_above, "{tokens} of two times 50");
    }
}

#[test]
fn an_error_in_a_200_is_charged_to_nobody_unless_it_reports_a_use() {
    let failed = |answer: &str| relay(&limits(), answer).1.has_failed();
    assert!(failed(r#"{"error":{"message":"no"}}"#));
    assert!(!failed(r#"{"error":{"message":"no"},"usage":{"total_tokens":4}}"#));
    assert!(!failed(r#"{"error":"no","meta":{"billed_units":{"search_units":1}}}"#));
    assert!(!failed(r#"{"error":null,"results":[]}"#));
    assert!(!failed(COHERE));
}

/// Tokens: the query is counted once for each document. Units: a hundred documents each, of 500 tokens
/// with the query.
#[test]
fn the_request_bounds_the_bill() {
    let one = "x".repeat(100);
    let pair = 128;
    for (what, query, documents, expected) in [
        ("two", 5, json!(["ab", "abc"]), used(2 * (5 + pair) + 5, 1)),
        ("an object", 5, json!([{"text": "ab"}]), used(5 + pair + 2, 1)),
        ("empty", 5, json!(["", ""]), used(2 * (5 + pair), 1)),
        ("a hundred", 1, json!(vec![&one; 100]), used(100 * (101 + pair), 1)),
        ("one more", 1, json!(vec![&one; 101]), used(101 * (101 + pair), 2)),
        ("short ones", 1, json!(vec!["a"; 10_000]), used(10_000 * (2 + pair), 100)),
        ("a long one", 100, json!(["x".repeat(400)]), used(500 + pair, 1)),
        ("a hundred long ones", 100, json!(vec!["x".repeat(401); 100]), used(50_100 + 12_800, 2)),
        // 16 KiB of Chinese: three bytes for each letter, 65.5 chunks of 250.
        ("Chinese", 300, json!(["\u{4e2d}".repeat(5461)]), used(300 + 16_383 + pair, 1)),
        (
            "twice as much",
            300,
            json!(vec!["\u{4e2d}".repeat(5461); 2]),
            used(2 * (300 + 16_383 + pair), 2),
        ),
        // The query alone is 800 chunks long.
        ("a long query", 400_000, json!(vec!["a"; 1000]), used(1000 * (400_001 + pair), 8010)),
    ] {
        assert_eq!(max_usage(&"q".repeat(query), &documents), expected, "{what}");
    }
}

#[test]
fn no_text_has_more_tokens_than_its_bound_however_it_is_normalized() {
    // What NFKC makes of it, which a vocabulary of single letters would count.
    for (letters, apart) in
        [("\u{fdfa}", 18), ("\u{fdfb}", 8), ("\u{bd}", 3), ("\u{3316}", 6), ("\u{2a0c}", 4)]
    {
        let most = max_usage("q", &json!([letters.repeat(1000)])).input_tokens;
        assert!(most >= apart * 1000, "{letters}: {most}");
    }
    let plain = max_usage("q", &json!(["\u{4e2d}\u{e9}a"])).input_tokens;
    assert_eq!(plain, 1 + 128 + 6, "ordinary text has a token a byte at most");
}

#[test]
fn an_instruction_is_read_with_the_query() {
    let body = |more: &str| format!(r#"{{"model":"m","query":"q"{more},"documents":["a","b"]}}"#);
    let tokens = |more| read_by(body(more).as_bytes(), &limits()).expect("valid").max_usage();
    let plain = tokens("").input_tokens;
    assert_eq!(tokens(r#","instruction":"be strict""#).input_tokens, plain + 2 * 9);
}

/// Chunks that the customer makes smaller are more chunks.
#[test]
fn small_chunks_are_many() {
    let body = |more: &str| {
        format!(r#"{{"model":"m","query":"q"{more},"documents":["{}"]}}"#, "x".repeat(4000))
    };
    let units = |more: &str| read_by(body(more).as_bytes(), &limits()).expect("valid").max_usage();
    assert_eq!(units("").rerank_units, 1);
    assert_eq!(units(r#","max_tokens_per_doc":4096"#).rerank_units, 1);
    assert_eq!(units(r#","max_tokens_per_doc":1"#).rerank_units, 40);
    let tokens = units(r#","max_tokens_per_doc":1"#).input_tokens;
    assert_eq!(tokens, units("").input_tokens, "and nothing is cut for the hold");
}

#[test]
fn a_models_context_bounds_each_pair() {
    let with = |context, pass: &[&str], more: &str| {
        let pass = PassList {
            fields: pass.iter().map(|field| (*field).to_owned()).collect(),
            ..PassList::default()
        };
        let limits = ModelLimits { input_tokens_max: context, pass, ..limits() };
        let body =
            format!(r#"{{"model":"m","query":"q","documents":["{}","b"]{more}}}"#, "x".repeat(999));
        read_by(body.as_bytes(), &limits).expect("valid").max_usage()
    };
    assert_eq!(with(0, &[], "").input_tokens, 2 + 256 + 1000);
    assert_eq!(with(512, &[], "").input_tokens, 1024);
    assert_eq!(with(100_000, &["rank_fields"], r#","rank_fields":["a"]"#), used(200_000, 5));
}

#[test]
fn invalid_requests_name_the_field() {
    for (fields, param) in [
        (r#""documents":["a"]"#, "query"),
        (r#""query":"","documents":["a"]"#, "query"),
        (r#""query":["q"],"documents":["a"]"#, "query"),
        (r#""query":{"image":"https://example.com/1.png"},"documents":["a"]"#, "query"),
        (r#""query":"q""#, "documents"),
        (r#""query":"q","documents":null"#, "documents"),
        (r#""query":"q","documents":[]"#, "documents"),
        (r#""query":"q","documents":"a""#, "documents"),
        (r#""query":"q","documents":{"text":"a"}"#, "documents"),
        (r#""query":"q","documents":["a",1]"#, "documents"),
        (r#""query":"q","documents":["a",null]"#, "documents"),
        (r#""query":"q","documents":[["a"]]"#, "documents"),
        (r#""query":"q","documents":[{}]"#, "documents"),
        (r#""query":"q","documents":[{"text":7}]"#, "documents"),
        (r#""query":"q","documents":[{"image":"https://example.com/1.png"}]"#, "documents"),
        (r#""query":"q","documents":[{"text":"a","title":"b"}]"#, "documents"),
        (r#""query":"q","documents":[{"text":"a","text":"b"}]"#, "documents"),
        (r#""query":"q","documents":[{"Text":"a"}]"#, "documents"),
        (r#""query":"q","documents":["a"],"top_n":0"#, "top_n"),
        (r#""query":"q","documents":["a"],"top_n":-1"#, "top_n"),
        (r#""query":"q","documents":["a"],"top_n":1.5"#, "top_n"),
        (r#""query":"q","documents":["a"],"return_documents":1"#, "return_documents"),
        (r#""query":"q","documents":["a"],"max_tokens_per_doc":0"#, "max_tokens_per_doc"),
        (r#""query":"q","documents":["a"],"instruction":["x"]"#, "instruction"),
        (r#""query":"q","documents":["a"],"rank_fields":["text"]"#, "rank_fields"),
        (r#""query":"q","documents":["a"],"overlap_tokens":80"#, "overlap_tokens"),
        (r#""query":"q","documents":["a"],"max_chunks_per_doc":9"#, "max_chunks_per_doc"),
        (r#""query":"q","Documents":["a"],"documents":["a"]"#, "Documents"),
        (r#""query":"q","documents":["a"],"top_k":1"#, "top_k"),
    ] {
        let body = format!(r#"{{"model":"m",{fields}}}"#);
        let error = read_by(body.as_bytes(), &limits()).expect_err(fields);
        assert_eq!(error.param.as_deref(), Some(param), "{fields}: {error}");
    }
    let of = |count: usize| {
        let body = json!({"model": "m", "query": "q", "documents": vec!["a"; count]}).to_string();
        let limits = ModelLimits { documents_max: 1000, ..limits() };
        read_by(body.as_bytes(), &limits).map(|call| call.max_usage().rerank_units)
    };
    assert_eq!(of(1000).expect("as many as may be"), 10);
    assert_eq!(of(1001).expect_err("one more").param.as_deref(), Some("documents"));
    assert!(Object::parse(br#"{"query":"a","query":"b"}"#).is_err(), "a key that is there twice");
}

#[test]
fn voyage_gets_its_own_words_and_the_customer_what_all_answer() {
    let read = |body: &[u8]| {
        let object = Object::parse(body).expect("JSON");
        VoyageRerank.read(&Request::Json(object), &limits())
    };
    let call = read(REQUEST).expect("valid");
    let sent = call.splice("rerank-2.5").apply(&Bytes::from_static(REQUEST));
    let expected = String::from_utf8_lossy(REQUEST)
        .replace("public-name", "rerank-2.5")
        .replace("\"top_n\"", "\"top_k\"")
        .replace("{\"text\":", "")
        .replace("good\\u201d\"}", "good\\u201d\"");
    assert_eq!(String::from_utf8_lossy(&sent), expected);
    let documents = &serde_json::from_slice::<serde_json::Value>(&sent).expect("JSON")["documents"];
    assert_eq!(*documents, json!(["from six to nine", "closed \u{201c}for good\u{201d}"]));

    let mut meter = call.meter(Framing::Json);
    assert!(meter.relay(Bytes::from(VOYAGE)).is_empty(), "held to its end");
    assert!(meter.changes_length() && meter.held_bytes() >= VOYAGE.len());
    let expected = VOYAGE.replace("\"data\"", "\"results\"").replace(
        r#""document":"from six \"to\" nine""#,
        r#""document":{"text":"from six \"to\" nine"}"#,
    );
    assert_eq!(String::from_utf8_lossy(&meter.finish()), expected);
    assert_eq!(meter.measure().0.input_tokens, 26);

    let refused = |body: &[u8]| read(body).expect_err("refused").param.unwrap_or_default();
    assert_eq!(
        refused(br#"{"query":"q","documents":["a"],"max_tokens_per_doc":9}"#),
        "max_tokens_per_doc"
    );
    let many = json!({"query": "q", "documents": vec!["a"; 1001]}).to_string();
    assert_eq!(refused(many.as_bytes()), "documents", "a thousand, whatever the model says");
}

/// Counts of an upstream that makes a token of every byte, with a template of 80 tokens: tokens, and units of
/// documents that are cut into consecutive chunks.
fn faithful(query: &str, documents: &[String], chunk: Option<u64>, repeats_query: bool) -> Usage {
    let bytes = |text: &str| text.len() as u64;
    let (mut tokens, mut chunks) = (0, 0_u64);
    let kept = bytes(query).min(250);
    for document in documents {
        tokens += bytes(query) + bytes(document) + 80;
        let (mut rest, room) = if repeats_query {
            (bytes(document), (500 - kept).min(chunk.unwrap_or(500)))
        } else {
            (bytes(query) + bytes(document), 500)
        };
        let before = chunks;
        while rest > 0 {
            rest = rest.saturating_sub(room);
            chunks += 1;
        }
        chunks = chunks.max(before + 1);
    }
    used(tokens, chunks.div_ceil(100))
}

#[test]
fn no_faithful_count_is_above_the_bound() {
    let seed = RandomState::new().hash_one("rerank").to_le_bytes();
    println!("seed {seed:?}");
    let mut bytes = [0; 32];
    bytes[..seed.len()].copy_from_slice(&seed);
    let config =
        ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, random);
    let text = "[a-z ]{0,40}|[a-z ]{200,900}|\\PC{0,60}|[\u{4e00}-\u{4e40}]{0,300}|[\\x01-\\x1f\"\\\\]{0,9}";
    let documents = prop::collection::vec((text, any::<bool>()), 1..130);
    let requests =
        ("[a-z]{1,30}|\\PC{1,300}|[a-z]{400,700}", documents, prop::option::of(1..600_u64));
    let tested = runner.run(&requests, |(query, documents, chunk)| {
        let made = documents.iter().map(|(text, is_object)| match is_object {
            true => json!({"text": text}),
            false => json!(text),
        });
        let mut body = json!({"model": "m", "query": query, "documents": made.collect::<Vec<_>>()});
        if let Some(chunk) = chunk {
            body["max_tokens_per_doc"] = json!(chunk);
        }
        let call = read_by(body.to_string().as_bytes(), &limits()).expect("valid");
        let (max_usage, min_usage) = (call.max_usage(), call.min_usage());
        let texts: Vec<String> = documents.into_iter().map(|(text, _)| text).collect();
        for repeats_query in [false, true] {
            let counted = faithful(&query, &texts, chunk, repeats_query);
            prop_assert!(
                counted.input_tokens <= max_usage.input_tokens,
                "{counted:?} {max_usage:?}"
            );
            prop_assert!(
                counted.rerank_units <= max_usage.rerank_units,
                "{counted:?} {max_usage:?}"
            );
        }
        prop_assert!(
            min_usage.input_tokens <= max_usage.input_tokens && min_usage.rerank_units >= 1
        );
        prop_assert!(
            min_usage.rerank_units <= max_usage.rerank_units,
            "{min_usage:?} {max_usage:?}"
        );
        Ok(())
    });
    tested.unwrap_or_else(|failed| panic!("seed {seed:?}: {failed}"));
}
