//! Checks of a session: every result in its place, pictures as pictures, no refusal, prompts that only grow,
//! and the exact charge.

use serde_json::{Value, json};
use tollgate::sim::PastCall;

use super::cell::Played;
use super::script::{Answered, ExpectedCall};
use super::upstream::{CACHED_TENTHS, INPUT, OUTPUT, Upstream};

/// The start of every PNG in base64.
const PNG: &str = "iVBORw0KGgo";

/// The number of turns; or the first fault.
pub(super) fn check(played: &Played) -> Result<usize, String> {
    let refused = refusals(&played.gateway.metrics());
    if !refused.is_empty() {
        return Err(format!("refused: {}{}", refused.join(", "), words(played)));
    }
    let ended = &played.ended;
    if !ended.is_success || !ended.output.contains(played.session.last()) {
        return Err(format!("the agent gave up{}", words(played)));
    }
    let turns: Vec<&Answered> = played.answered.iter().filter(|one| one.in_session).collect();
    if turns.len() != played.session.turns() {
        return Err(format!("{} turns{}", turns.len(), words(played)));
    }
    check_results(played, turns.last().expect("turns"))?;
    check_prefixes(played, &turns)?;
    check_thinking(played, &turns)?;
    for (name, content) in played.session.files("files_after") {
        let found = std::fs::read_to_string(played.work.path().join(&name)).unwrap_or_default();
        if found != content {
            return Err(format!("{name} is {found:?}"));
        }
    }
    check_charge(played)?;
    Ok(turns.len())
}

/// The end of what the agent printed.
fn words(played: &Played) -> String {
    let all = format!("{}\n{}", played.ended.output, played.ended.errors);
    let start = all.char_indices().rev().nth(1500).map_or(0, |(at, _)| at);
    format!("\n{}", &all[start..])
}

/// The classes and codes of requests that were refused, from the gateway's metrics.
pub(super) fn refusals(metrics: &str) -> Vec<String> {
    let label = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };
    let series = metrics.lines().filter(|line| line.starts_with("tollgate_requests_total{"));
    let refused = series.filter_map(|line| {
        let status = label(line, "status")?;
        let count = line.rsplit_once(' ')?.1;
        (status.starts_with(['4', '5']) && count != "0")
            .then(|| format!("{count} × {status} {}", label(line, "code").unwrap_or_default()))
    });
    refused.collect()
}

/// Every call of the script came back with its input, and a result that shows what it has to.
fn check_results(played: &Played, last: &Answered) -> Result<(), String> {
    let plan = played.session.plan(&last.request, played.work.path()).expect("a kit");
    let expected: Vec<ExpectedCall> = plan.into_iter().flatten().collect();
    let calls = &last.request.calls;
    if calls.len() != expected.len() {
        return Err(format!("{} calls of {}", calls.len(), expected.len()));
    }
    for (at, (call, expected)) in calls.iter().zip(&expected).enumerate() {
        let others = calls.iter().filter(|other| other.id == call.id).count();
        if !call.id.is_empty() && others > 1 {
            return Err(format!("{others} calls have the id {}", call.id));
        }
        if !has_input(call, expected) {
            return Err(format!("call {at} is {call:?}, not {expected:?}"));
        }
        let text = strings(&call.result).concat();
        if let Some(missing) = expected.shows.iter().find(|text_part| !text.contains(*text_part)) {
            return Err(format!("{missing:?} is no part of the result of call {at}: {call:?}"));
        }
        if call.result.is_null() {
            return Err(format!("call {at} has no result: {call:?}"));
        }
    }
    match pictures(played.cell.upstream, &last.request.body) {
        2 => Ok(()),
        count => Err(format!("{count} pictures arrived of 2")),
    }
}

/// Agents may add fields that their tools have by default.
fn has_input(call: &PastCall, expected: &ExpectedCall) -> bool {
    let input = match &expected.call.input {
        Value::String(text) if call.input.is_object() => json!({"input": text}),
        other => other.clone(),
    };
    match (&input, &call.input) {
        (Value::Object(expected), Value::Object(found)) => {
            expected.iter().all(|(key, value)| found.get(key) == Some(value))
        }
        (expected, found) => expected == found,
    }
}

/// All texts in a value, in order.
fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(all) => all.iter().flat_map(strings).collect(),
        Value::Object(members) => members.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

/// The pictures of a request, in the form of its dialect.
fn pictures(upstream: Upstream, value: &Value) -> usize {
    let starts = |value: &Value, prefix: &str| {
        value.as_str().is_some_and(|text| text.starts_with(&format!("{prefix}{PNG}")))
    };
    let data_url = "data:image/png;base64,";
    let is_picture = match upstream {
        Upstream::Chat => starts(&value["image_url"]["url"], data_url),
        Upstream::Responses => {
            value["type"] == "input_image" && starts(&value["image_url"], data_url)
        }
        Upstream::Messages => value["type"] == "image" && starts(&value["source"]["data"], ""),
        Upstream::Gemini => {
            value["inlineData"]["mimeType"] == "image/png"
                && starts(&value["inlineData"]["data"], "")
        }
        Upstream::Converse => {
            value["image"]["format"] == "png" && starts(&value["image"]["source"]["bytes"], "")
        }
    };
    let inside: usize = match value {
        Value::Array(all) => all.iter().map(|one| pictures(upstream, one)).sum(),
        Value::Object(members) => members.values().map(|one| pictures(upstream, one)).sum(),
        _ => 0,
    };
    inside + usize::from(is_picture)
}

/// Each prompt begins with the one before, but for marks of caches, so that a provider's cache holds.
fn check_prefixes(played: &Played, turns: &[&Answered]) -> Result<(), String> {
    // What is relayed byte for byte is the agent's own.
    if played.cell.is_native() {
        return Ok(());
    }
    let key = match played.cell.upstream {
        Upstream::Chat | Upstream::Messages | Upstream::Converse => "messages",
        Upstream::Responses => "input",
        Upstream::Gemini => "contents",
    };
    let part = |turn: &Answered, key: &str| without_marks(&turn.request.body[key]);
    for (number, pair) in turns.windows(2).enumerate() {
        let [first, second] = [0, 1].map(|at| part(pair[at], key));
        let (first, second) =
            (first.as_array().expect("a list"), second.as_array().expect("a list"));
        if !second.starts_with(first) {
            let at = first.iter().zip(second).position(|(one, other)| one != other);
            return Err(format!("{key}[{at:?}] of turn {} is another than before", number + 1));
        }
        let heads = ["tools", "toolConfig", "system", "systemInstruction", "instructions"];
        for head in heads {
            if part(pair[0], head) != part(pair[1], head) {
                return Err(format!("{head} of turn {} is another than before", number + 1));
            }
        }
    }
    Ok(())
}

/// A value without marks for caches, which move.
fn without_marks(value: &Value) -> Value {
    match value {
        Value::Array(all) => {
            let kept = all.iter().filter(|one| !one["cachePoint"].is_object());
            kept.map(without_marks).collect()
        }
        Value::Object(members) => {
            let kept = members.iter().filter(|(key, _)| *key != "cache_control");
            Value::Object(kept.map(|(key, value)| (key.clone(), without_marks(value))).collect())
        }
        other => other.clone(),
    }
}

/// Thinking is on upstream where the agent turns it on and the dialect has words for it.
fn check_thinking(played: &Played, turns: &[&Answered]) -> Result<(), String> {
    if !played.cell.agent.thinks() {
        return Ok(());
    }
    let is_on = |body: &Value| match played.cell.upstream {
        // Common chat has no word that all providers take.
        Upstream::Chat => true,
        Upstream::Responses => body["reasoning"].is_object(),
        Upstream::Messages => {
            body["thinking"]["type"] != "disabled" && body["thinking"].is_object()
        }
        Upstream::Gemini => body["generationConfig"]["thinkingConfig"].is_object(),
        Upstream::Converse => body["additionalModelRequestFields"]["thinking"].is_object(),
    };
    match turns.iter().position(|turn| !is_on(&turn.request.body)) {
        None => Ok(()),
        Some(at) => Err(format!("no thinking in turn {at}")),
    }
}

/// The account was charged the sum of the reported usages at the model's prices.
fn check_charge(played: &Played) -> Result<(), String> {
    let nanousd = |one: &Answered| {
        let usage = one.usage;
        // Dollars for a million tokens are thousands of nano-dollars for one.
        (usage.input - usage.cached) * INPUT * 1000
            + usage.cached * CACHED_TENTHS * 100
            + usage.output * OUTPUT * 1000
    };
    let expected: u64 = played.answered.iter().map(nanousd).sum();
    let balance = played.gateway.settled();
    let spent = balance["spent"].as_str().unwrap_or_default().to_owned();
    let (whole, decimals) = spent.split_once('.').unwrap_or((&spent, ""));
    let found: u64 = format!("{whole}{decimals:0<9}").parse().expect("nano-dollars");
    if found == expected { Ok(()) } else { Err(format!("charged {found}, not {expected}")) }
}
