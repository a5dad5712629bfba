//! The drift gate: the keys of requests and usages that the newest packages of OpenAI, Anthropic and Google
//! know, held against what the gateway offers, prices and counts.
//!
//! A key is in order when a table below `crates/protocols/src/request_policy` has it, when a meter counts it, or when
//! `tests/drift/reviewed.json` has it with a reason and a date. An entry there that no package knows any
//! more, or that is offered or counted by now, is as wrong as a key that nobody has looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate::protocols::json::Object;
use tollgate::protocols::limits::ModelLimits;
use tollgate::protocols::{
    AllowedKey, Codec, Framing, ModelInPath, Operation, REGISTRY, Request, allowed_keys,
};

use crate::harness::python;

/// Reviewed keys, beside the test.
const REVIEWED: &str = include_str!("../drift/reviewed.json");
/// A count that is no total.
const USUAL: u64 = 7;
/// Usages have this behind the name of their operation.
const USAGE: &str = " usage";

/// Keys by operation, as `tests/drift/sdk_keys.py` prints them: those of requests and those of usages.
type Surfaces = BTreeMap<String, BTreeSet<String>>;

/// Keys that were looked at for one reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Review {
    /// The keys' fate.
    fate: Fate,
    /// Why that is right.
    reason: String,
    /// The day on which somebody looked.
    date: String,
    /// The keys of each operation; `{a,b}` stands for either.
    keys: BTreeMap<String, Vec<String>>,
}

/// A key's fate.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fate {
    /// It is refused, with all that stands inside of it.
    Refused,
    /// It reaches the upstream unread, and changes no price that is not counted.
    Passed,
    /// Of a usage: what it counts is a part of another count, or not billed.
    Uncounted,
}

/// Keys with their alternatives in braces written out.
fn expanded(key: &str) -> Vec<String> {
    let Some((before, rest)) = key.split_once('{') else { return vec![key.to_owned()] };
    let (inside, after) = rest.split_once('}').expect("a closing brace");
    let each = inside.split(',').map(|word| format!("{before}{word}{after}"));
    each.flat_map(|key| expanded(&key)).collect()
}

fn reviews() -> Vec<Review> {
    let reviews: Vec<Review> = serde_json::from_str(REVIEWED).expect("reviewed.json");
    for Review { reason, date, .. } in &reviews {
        assert!(reason.len() > 20, "a reason says why: {reason:?}");
        let is_day = date.len() == 10 && date.starts_with("20") && date.split('-').count() == 3;
        assert!(is_day, "a date is a day: {date:?}");
    }
    reviews
}

/// The keys of the installed packages, with those that are `added`.
fn keys_of_packages(added: &[&str]) -> Surfaces {
    let mut python = Command::new(python::environment().join("bin/python"));
    python.arg("tests/drift/sdk_keys.py").current_dir(env!("CARGO_MANIFEST_DIR"));
    for key in added {
        python.args(["--add", key]);
    }
    let output = python.output().expect("python runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tests/drift/sdk_keys.py: {errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The gateway's tables for the keys of a surface.
enum Listed {
    /// The keys of its table.
    Offered(Vec<AllowedKey>),
    /// The keys that change what its meter measures.
    Counted(BTreeSet<String>),
}

impl Listed {
    fn of(surface: &str, keys: &BTreeSet<String>) -> Self {
        let name = surface.strip_suffix(USAGE);
        let operation = |name: &str| {
            let mut all = REGISTRY.iter().map(|codec| codec.operation());
            all.find(|one| one.as_str() == name).unwrap_or_else(|| panic!("{name}"))
        };
        match name {
            Some(name) => Self::Counted(counted(operation(name), keys)),
            None => Self::Offered(allowed_keys(operation(surface))),
        }
    }

    /// True if somebody need not look at the key: `path` or `path=word`.
    fn has(&self, key: &str) -> bool {
        match self {
            Self::Counted(counted) => {
                let (path, word) = key.split_once('=').unwrap_or((key, ""));
                // Words of a count that is read need no look, and neither do objects around counts.
                counted.contains(key) || (!word.is_empty() && !counted.contains(path))
            }
            Self::Offered(offered) => {
                let (path, word) = key.split_once('=').unwrap_or((key, ""));
                let path = path.replace("[]", "");
                let found = offered.iter().find(|existing| existing.path == path);
                match (found, word) {
                    (found, "") => found.is_some(),
                    // Words of keys that are not offered, or of which any is, say nothing.
                    (None, _) | (Some(AllowedKey { words: None, .. }), _) => true,
                    (Some(AllowedKey { words: Some(words), .. }), word) => {
                        words.iter().any(|existing| match existing.strip_suffix('*') {
                            Some(begin) => word.starts_with(begin),
                            None => existing == word,
                        })
                    }
                }
            }
        }
    }
}

/// Faults, one line for each key.
fn faults(surfaces: &Surfaces, reviews: &[Review]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut reviewed: BTreeMap<&str, BTreeMap<String, Fate>> = BTreeMap::new();
    for review in reviews {
        for (surface, keys) in &review.keys {
            if !surfaces.contains_key(surface) {
                faults.push(format!("{surface}: there is no such surface"));
            }
            for key in keys.iter().flat_map(|key| expanded(key)) {
                if reviewed.entry(surface).or_default().insert(key.clone(), review.fate).is_some() {
                    faults.push(format!("{surface}: {key} is listed twice"));
                }
            }
        }
    }
    for (surface, keys) in surfaces {
        let existing = Listed::of(surface, keys);
        let listed = reviewed.remove(surface.as_str()).unwrap_or_default();
        let is_inside_refused = |key: &str| {
            let mut refused = listed.iter().filter(|(_, fate)| **fate == Fate::Refused);
            refused.any(|(outer, _)| {
                let rest = key.strip_prefix(outer.as_str());
                rest.is_some_and(|rest| rest.starts_with(['.', '[', '=']))
            })
        };
        for key in keys {
            let is_listed = existing.has(key) || is_inside_refused(key);
            match (is_listed, listed.contains_key(key)) {
                (false, false) => faults.push(format!("{surface}: {key} is new")),
                (true, true) => faults.push(format!("{surface}: {key} needs no entry any more")),
                _ => {}
            }
        }
        for key in listed.keys().filter(|key| !keys.contains(*key)) {
            faults.push(format!("{surface}: {key} is not there any more"));
        }
    }
    faults
}

/// The keys of a usage that change what a meter measures of an answer, beside all others or beside the
/// totals alone, and the objects around them.
fn counted(operation: Operation, keys: &BTreeSet<String>) -> BTreeSet<String> {
    let all: Vec<&str> = keys.iter().map(String::as_str).filter(|key| is_leaf(key, keys)).collect();
    let totals: Vec<&str> = all.iter().copied().filter(|leaf| usual(leaf) > USUAL).collect();
    let mut counted = BTreeSet::new();
    for leaf in &all {
        let path = leaf.split_once('=').map_or(*leaf, |(path, _)| path);
        let counts = |others: &[&str]| {
            let [without, with] = [false, true].map(|has| usage(others, path, leaf, has));
            measured(operation, &with) != measured(operation, &without)
        };
        if counts(&all) || counts(&totals) {
            counted.insert((*leaf).to_owned());
            let mut at = path;
            while !at.is_empty() {
                counted.insert(at.trim_end_matches("[]").to_owned());
                at = at.rsplit_once('.').map_or("", |(outer, _)| outer);
            }
        }
    }
    counted
}

/// True if a key has a value of its own: a number, or one of its words.
fn is_leaf(key: &str, keys: &BTreeSet<String>) -> bool {
    let has_inside = ['.', '[', '='].into_iter().any(|next| {
        let begin = format!("{key}{next}");
        keys.range(begin.clone()..).next().is_some_and(|inner| inner.starts_with(&begin))
    });
    !has_inside
}

/// A usage with a count for each leaf but for that at `path`, which has what the leaf `changed` says if
/// it `has` anything.
fn usage(leaves: &[&str], path: &str, changed: &str, has: bool) -> Value {
    let mut usage = Value::Object(Map::new());
    // Counts of one kind are held against each other.
    let kind = changed.split_once(".modality=").map_or("AUDIO", |(_, word)| word);
    for leaf in leaves.iter().filter(|leaf| leaf.split('=').next() != Some(path)) {
        match leaf.split_once('=') {
            None => put(&mut usage, leaf, value_of(leaf, usual(leaf))),
            // Counts of a kind need a kind.
            Some((path, word)) if word == kind => put(&mut usage, path, json!(word)),
            Some(_) => {}
        }
    }
    match changed.split_once('=') {
        _ if !has => {}
        Some((path, word)) => put(&mut usage, path, json!(word)),
        None => put(&mut usage, changed, value_of(changed, 1_000_000)),
    }
    usage
}

/// A value for a key without listed words.
fn value_of(leaf: &str, count: u64) -> Value {
    match leaf {
        "inference_geo" => json!("us"),
        _ => json!(count),
    }
}

/// A count that contradicts none of the others.
fn usual(leaf: &str) -> u64 {
    match leaf {
        "total_tokens" | "totalTokenCount" => 200_000,
        "prompt_tokens"
        | "input_tokens"
        | "completion_tokens"
        | "output_tokens"
        | "promptTokenCount"
        | "candidatesTokenCount" => 100_000,
        // Of which a cache has read a part.
        "promptTokensDetails[].tokenCount" => 40,
        _ => USUAL,
    }
}

fn put(object: &mut Value, path: &str, value: Value) {
    let (key, rest) = path.split_once('.').unwrap_or((path, ""));
    let (name, is_list) = key.strip_suffix("[]").map_or((key, false), |name| (name, true));
    let place = &mut object[name];
    let place = if is_list {
        if !place.is_array() {
            *place = json!([{}]);
        }
        &mut place[0]
    } else {
        place
    };
    if rest.is_empty() {
        *place = value;
    } else {
        if !place.is_object() {
            *place = json!({});
        }
        put(place, rest, value);
    }
}

/// A meter's result for an answer with this usage: counts and service tier.
fn measured(operation: Operation, usage: &Value) -> String {
    let (request, answer) = match operation {
        Operation::GenerateContent => (
            json!({"contents": [{"parts": [{"text": "a"}]}]}),
            json!({"candidates": [], "usageMetadata": usage}),
        ),
        Operation::Responses => (json!({"model": "m", "input": "a"}), json!({"usage": usage})),
        _ => (
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}]}),
            json!({"usage": usage}),
        ),
    };
    let mut codecs = REGISTRY.iter().filter(|codec| codec.operation() == operation);
    let codec: &dyn Codec = *codecs.next().expect("a codec");
    let body = request.to_string();
    let object = Object::parse(body.as_bytes()).expect("JSON");
    let named = ModelInPath { model: "m", streams: false };
    let request = match operation {
        Operation::GenerateContent => Request::JsonAt(object, named),
        _ => Request::Json(object),
    };
    let limits = ModelLimits {
        input_tokens_max: 4_000_000,
        output_tokens_max: 4_000_000,
        ..ModelLimits::default()
    };
    let call = codec.read(&request, &limits).expect("a valid request");
    let mut meter = call.meter(Framing::Json);
    meter.relay(answer.to_string().into());
    meter.finish();
    format!("{:?} {:?}", meter.measure(), meter.served())
}

#[test]
fn every_key_of_the_newest_packages_is_offered_priced_or_reviewed() {
    let surfaces = keys_of_packages(&[]);
    assert!(surfaces.len() >= 16, "{:?}", surfaces.keys());
    let faults = faults(&surfaces, &reviews());
    assert!(
        faults.is_empty(),
        "{} keys; docs/adr/0064-new-provider-features.md says what to do:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

#[test]
fn a_key_that_is_added_to_a_package_is_found_wherever_it_is_added() {
    let added = [
        "openai.types.responses.response_create_params:ResponseCreateParamsStreaming.later",
        "openai.types.responses.response_create_params:PromptCacheOptions.later",
        "openai.types.responses.response_input_text_param:PromptCacheBreakpoint.later",
        "openai.types.shared_params.reasoning:Reasoning.later",
        "openai.types.chat.completion_create_params:CompletionCreateParamsStreaming.later",
        "openai.types.responses.response_usage:InputTokensDetails.later_tokens",
        "anthropic.types.cache_control_ephemeral_param:CacheControlEphemeralParam.later",
        "anthropic.types.cache_creation:CacheCreation.later_tokens",
        "google.genai.types:ThinkingConfig.later",
        "google.genai.types:GenerateContentResponseUsageMetadata.later_count",
    ];
    let surfaces = keys_of_packages(&added);
    let faults = faults(&surfaces, &reviews());
    for expected in [
        "responses: later is new",
        "responses: prompt_cache_options.later is new",
        "responses: input[].content[].prompt_cache_breakpoint.later is new",
        "responses: reasoning.later is new",
        "chat: later is new",
        "responses usage: input_tokens_details.later_tokens is new",
        "messages: cache_control.later is new",
        "messages usage: cache_creation.later_tokens is new",
        "generate_content: generationConfig.thinkingConfig.later is new",
        "generate_content usage: laterCount is new",
    ] {
        assert!(faults.iter().any(|fault| fault == expected), "{expected}: {faults:#?}");
    }
}

#[test]
fn entries_that_nothing_needs_are_found() {
    let surfaces = Surfaces::from([(
        "chat".to_owned(),
        ["model", "moderation", "moderation.model", "service_tier", "service_tier=slowest"]
            .map(str::to_owned)
            .into(),
    )]);
    let review = |keys: &[&str]| Review {
        fate: Fate::Refused,
        reason: "what it costs is not known".to_owned(),
        date: "2026-11-27".to_owned(),
        keys: [("chat".to_owned(), keys.iter().map(|key| (*key).to_owned()).collect())].into(),
    };
    let found = |keys: &[&str]| faults(&surfaces, &[review(keys)]);
    assert_eq!(found(&["moderation", "service_tier=slowest"]), [""; 0]);
    assert_eq!(found(&["moderation"]), ["chat: service_tier=slowest is new"]);
    assert_eq!(
        found(&["moderation", "service_tier=slowest", "model", "gone"]),
        ["chat: model needs no entry any more", "chat: gone is not there any more"]
    );
    let doubled = found(&["{moderation,moderation}", "service_tier=slowest"]);
    assert_eq!(doubled, ["chat: moderation is listed twice"]);
}
