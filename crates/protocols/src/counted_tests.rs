//! Bounds of prompts whose tokens a provider has counted, over codecs of several dialects.

use bytes::Bytes;
use tollgate_money::price::{Unit, Usage};

use crate::anthropic_messages::AnthropicMessages;
use crate::counter::Counter;
use crate::json::Object;
use crate::limits::{ModelLimits, PassList, PricedFeatures};
use crate::openai_responses::OpenaiResponses;
use crate::{Call, Codec, Dialect, Request, request_policy};

/// Words of the prompt, which are so many tokens and five times as many bytes.
const WORDS: u64 = 8_000;
const COUNTED: u64 = 8_000 + 160 + 64;

fn read(codec: &dyn Codec, body: &str) -> Box<dyn Call> {
    let limits = ModelLimits {
        input_tokens_max: 200_000,
        output_tokens_max: 8_000,
        priced: PricedFeatures { units: Unit::ALL.to_vec(), ..PricedFeatures::default() },
        pass: PassList { fields: vec!["x_unknown".to_owned()], ..PassList::default() },
        ..ModelLimits::default()
    };
    let object = Object::parse(body.as_bytes()).expect("JSON");
    codec.read(&Request::Json(object), &limits).expect("valid")
}

fn messages(fields: &str) -> Box<dyn Call> {
    let text = "word ".repeat(8_000);
    read(
        &AnthropicMessages,
        &format!(
            r#"{{"model":"m","max_tokens":100,"messages":[{{"role":"user","content":"{text}"}}]{fields}}}"#
        ),
    )
}

fn responses(fields: &str) -> Box<dyn Call> {
    let text = "word ".repeat(8_000);
    read(
        &OpenaiResponses,
        &format!(r#"{{"model":"m","max_output_tokens":100,"input":"{text}"{fields}}}"#),
    )
}

fn counted(call: &mut Box<dyn Call>, tokens: u64) -> Usage {
    assert!(call.bounds_mut().count_input(tokens), "lower than the bytes");
    call.max_usage()
}

#[test]
fn a_count_with_its_margin_stands_for_the_bytes_of_a_prompt() {
    let mut call = messages("");
    let before = call.max_usage();
    assert!(before.input_tokens > 40_000);
    let after = counted(&mut call, WORDS);
    assert_eq!(after, Usage { input_tokens: COUNTED, ..before }, "and nothing else changes");
    assert!(call.min_usage().input_tokens <= after.input_tokens);
    // A later count replaces the first where it is lower, and never raises the bound.
    assert!(!call.bounds_mut().count_input(WORDS + 1_000));
    assert_eq!(call.max_usage(), after);
}

#[test]
fn a_count_that_is_no_better_changes_nothing_and_one_far_below_the_estimate_is_not_believed() {
    let mut call = messages("");
    let (before, min_usage) = (call.max_usage(), call.min_usage().input_tokens);
    for useless in [before.input_tokens, u64::MAX] {
        assert!(!call.bounds_mut().count_input(useless), "{useless}");
        assert_eq!(call.max_usage(), before);
    }
    let least = min_usage / 4 + min_usage / 200 + 64;
    assert_eq!(counted(&mut call, 1).input_tokens, least, "a counter that answers 1");
    assert!(least > WORDS / 4 && call.min_usage().input_tokens == least, "{least}");
}

#[test]
fn searches_add_their_results_to_the_counted_prompt() {
    let tool = r#","tools":[{"type":"web_search"}]"#;
    let mut call = responses(tool);
    let before = call.max_usage();
    let after = counted(&mut call, WORDS);
    // Five searches of 8,000 tokens; rounds after the first read the prompt from the cache.
    assert_eq!(after.input_tokens, COUNTED + 5 * 8_000);
    let reread: u64 = (0..5).map(|calls| COUNTED + calls * 8_000).sum();
    assert_eq!(after.cache_read_tokens, reread);
    assert_eq!(after.output_tokens, before.output_tokens);
    assert_eq!(after[Unit::WebSearches], before[Unit::WebSearches]);
    let tool = r#","tools":[{"type":"web_search_20250305","name":"web_search","max_uses":2}]"#;
    let mut call = messages(tool);
    let after = counted(&mut call, WORDS);
    let rounds = [COUNTED, COUNTED + 8_000, COUNTED + 16_000];
    assert_eq!(after.input_tokens, rounds.iter().sum::<u64>(), "each round is input");
}

#[test]
fn a_summary_keeps_its_context() {
    let compacts = r#","context_management":{"edits":[{"type":"compact_20260112"}]}"#;
    let mut call = messages(compacts);
    let before = call.max_usage();
    assert_eq!(before.input_tokens, 400_000);
    let after = counted(&mut call, WORDS);
    assert_eq!(after, Usage { input_tokens: 200_000 + COUNTED, ..before });
}

#[test]
fn what_a_counter_does_not_cover_keeps_its_bound() {
    for mut call in [
        responses(r#","tools":[{"type":"code_interpreter","container":{"type":"auto"}}]"#),
        messages(r#","tools":[{"type":"web_fetch_20250910","name":"web_fetch"}]"#),
        messages(r#","x_unknown":1"#),
    ] {
        let before = call.max_usage();
        assert!(!call.bounds().is_countable());
        assert!(!call.bounds_mut().count_input(WORDS));
        assert_eq!(call.max_usage(), before);
    }
}

/// Every field that a dialect offers is in the table of its counter, or known to be uncountable.
#[test]
fn every_field_that_is_offered_has_been_looked_at() {
    for (allowed, (counter, dialect), uncounted) in [
        (allowed(&request_policy::MESSAGES), (Counter::Messages, Dialect::Anthropic), &[][..]),
        (
            allowed(&request_policy::RESPONSES),
            (Counter::Responses, Dialect::Openai),
            &["prompt", "conversation"][..],
        ),
        (allowed(&request_policy::GEMINI), (Counter::Content, Dialect::Gemini), &[][..]),
        (allowed(&request_policy::GEMINI), (Counter::Content, Dialect::Vertex), &[][..]),
    ] {
        for field in allowed {
            let body = Bytes::from(format!(r#"{{"{field}":1}}"#));
            let is_listed = counter.request(dialect, "m", &body).is_some();
            assert!(is_listed || uncounted.contains(&field), "{field}");
        }
    }
}

fn allowed(allowlist: &'static request_policy::Allowlist) -> Vec<&'static str> {
    let is_left_out =
        |field: &request_policy::Field| matches!(field, request_policy::Field::Omitted(_));
    let fields = allowlist.fields.iter().filter(|(_, field)| !is_left_out(field));
    fields.map(|(name, _)| *name).collect()
}
