//! What a request with a search is held at, on every model that is shipped.

use std::collections::BTreeMap;

use tollgate_money::clock::UnixMs;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Prices, Unit, Usage};
use tollgate_protocols::json::Object;
use tollgate_protocols::{Call, Dialect, NamedInPath, Operation, Request, codec};

use crate::snapshot::{Model, Snapshot};
use crate::{Overrides, Sources, load_with};

/// What `tollgate demo` begins with.
const DEMO: Nanousd = Nanousd::new(10_000_000_000);

fn shipped() -> Snapshot {
    let overrides = Overrides { allow_unset: true, ..Overrides::default() };
    let env = |name: &str| name.ends_with("_KEY").then(|| "key".to_owned());
    load_with(&Sources::Embedded, &overrides, &env).expect("what is shipped is valid").0
}

/// The request as an upstream of this dialect would read it.
fn read(model: &Model, operation: Operation, dialect: Dialect, body: &str) -> Box<dyn Call> {
    let object = Object::parse(body.as_bytes()).expect("JSON");
    let named = NamedInPath { model: &model.id, streams: true };
    let request = match operation.is_named_in_path() {
        true => Request::JsonAt(object, named),
        false => Request::Json(object),
    };
    let codec = codec(operation, dialect).expect("native");
    codec.read(&request, &model.limits).unwrap_or_else(|error| panic!("{}: {error}", model.id))
}

/// What is held for a call, as the gateway's pipeline computes it.
fn hold(model: &Model, call: &dyn Call) -> Nanousd {
    let bound = call.bound();
    let alone = Usage { cache_read_tokens: 0, ..bound };
    let quote = model.prices.list.quote(&call.traits(), &alone, UnixMs(0));
    let prices = quote.dearest();
    let prices = Prices { input: prices.input_dearest(call.input_ways()), ..*prices };
    prices.cost(&Usage { requests: 1, ..bound })
}

/// The hold of one request and the price of its real turn, by model.
type ModelHolds = BTreeMap<String, (Nanousd, Nanousd)>;

/// Every shipped model of a dialect that searches, with its hold of `body` and what the turn really costs.
fn holds(operation: Operation, dialect: Dialect, body: &str, real: &Usage) -> ModelHolds {
    let snapshot = shipped();
    let natively = |model: &&std::sync::Arc<Model>| {
        model.operations.contains(&operation)
            && model.targets.iter().any(|target| target.upstream.dialect == dialect)
            && (dialect != Dialect::Gemini || model.limits.priced.has_unit(Unit::WebSearches))
    };
    let held = snapshot.models.iter().filter(natively).map(|model| {
        let call = read(model, operation, dialect, body);
        let prices = model.prices.list.quote(&call.traits(), real, UnixMs(0));
        (model.id.to_string(), (hold(model, call.as_ref()), prices.dearest().cost(real)))
    });
    let held: BTreeMap<_, _> = held.collect();
    for (model, (hold, real)) in &held {
        println!(
            "{model}: held ${hold}, a real turn ${real}, {} times",
            hold.get() / real.get().max(1)
        );
    }
    held
}

fn assert_within(held: &ModelHolds, models_min: usize) {
    assert!(held.len() >= models_min, "{held:?}");
    for (model, (hold, _)) in held {
        assert!(*hold <= DEMO, "{model} holds ${hold}");
    }
}

/// What Codex sends with its first turn: 45 KB of instructions and tools, a search among them, and no limit
/// of output.
fn codex() -> String {
    let function = |number: usize| {
        let text = "Runs a command in a shell and returns its output. ".repeat(24);
        format!(
            r#"{{"type":"function","name":"tool_{number}","description":"{text}","parameters":{{"type":"object","properties":{{}}}}}}"#
        )
    };
    let functions: Vec<String> = (0..14).map(function).collect();
    let text = "You are a coding agent. You are precise, safe and helpful. ".repeat(420);
    format!(
        r#"{{"model":"m","instructions":"{text}","input":[{{"type":"message","role":"user","content":[{{"type":"input_text","text":"hi"}}]}}],"tools":[{},{{"type":"web_search","external_web_access":true}}],"tool_choice":"auto","parallel_tool_calls":true,"reasoning":{{"effort":"medium","summary":"auto"}},"store":false,"stream":true,"include":["reasoning.encrypted_content"]}}"#,
        functions.join(",")
    )
}

#[test]
fn a_turn_of_codex_fits_the_balance_of_the_demo_on_every_model() {
    let real = Usage {
        input_tokens: 14_000,
        cache_read_tokens: 22_000,
        output_tokens: 1_500,
        web_searches: 1,
        ..Usage::ZERO
    };
    let body = codex();
    assert!((40_000..60_000).contains(&body.len()), "{}", body.len());
    let held = holds(Operation::Responses, Dialect::Openai, &body, &real);
    assert_within(&held, 20);
    let parallel = |(_, (hold, _)): &(&String, &(Nanousd, Nanousd))| hold.get() <= DEMO.get() / 8;
    let eight = held.iter().filter(parallel).count();
    assert!(eight * 2 >= held.len(), "{eight} of {} hold eight turns at one time", held.len());
}

#[test]
fn a_search_of_claude_code_fits_the_balance_of_the_demo_on_every_model() {
    let body = r#"{"model":"m","max_tokens":32000,"stream":true,"system":[{"type":"text","text":"You are an assistant for performing a web search tool use"}],"messages":[{"role":"user","content":[{"type":"text","text":"Perform a web search for the query: rust 2027"}]}],"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":8}]}"#;
    let real = Usage { input_tokens: 18_000, output_tokens: 900, web_searches: 1, ..Usage::ZERO };
    assert_within(&holds(Operation::Messages, Dialect::Anthropic, body, &real), 16);
    let unlimited = body.replace(r#","max_uses":8"#, "").replace("20250305", "20260209");
    assert_within(&holds(Operation::Messages, Dialect::Anthropic, &unlimited, &real), 16);
}

#[test]
fn googles_grounding_fits_the_balance_of_the_demo_on_every_model() {
    let body = r#"{"contents":[{"role":"user","parts":[{"text":"who won?"}]}],"tools":[{"googleSearch":{}}]}"#;
    let real = Usage { input_tokens: 30, output_tokens: 600, web_searches: 2, ..Usage::ZERO };
    assert_within(&holds(Operation::GenerateContent, Dialect::Gemini, body, &real), 3);
}
