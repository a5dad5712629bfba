//! Prompts begin alike from turn to turn, so that caches of providers find them again: as much of a
//! translated conversation as of one in the upstream's own dialect.

use serde_json::{Value, json};

use super::wire::Customer;
use super::{call, cells_with_natives, gateway};
use crate::harness::{Gateway, simulator};
use tollgate::sim::Sim;

/// Turns of a conversation, each with a call of a tool in it.
const TURNS: usize = 10;
/// Bytes of a prompt that a provider takes for a token, and the tokens of a block that its cache keeps:
/// OpenAI's are kept by 128.
const TOKEN_BYTES: usize = 4;
const BLOCK_TOKENS: usize = 128;
/// How far the cached share may be from that of an untranslated conversation.
const APART_MAX: f64 = 0.02;

/// A prompt as a provider reads it: tools, instructions, and turn after turn. Marks for the cache are no
/// part of it.
fn prompt(body: &Value) -> String {
    let mut text = String::new();
    for key in ["tools", "system", "instructions"] {
        text += &body[key].to_string();
    }
    for turn in ["messages", "input"].iter().filter_map(|key| body[key].as_array()).flatten() {
        text += &turn.to_string();
    }
    text.replace(r#""cache_control":{"type":"ephemeral"},"#, "")
        .replace(r#","cache_control":{"type":"ephemeral"}"#, "")
}

/// The share of all input that a provider's cache has read, which remembers every prompt before.
fn cached_share(prompts: &[String]) -> f64 {
    let tokens = |bytes: usize| bytes / TOKEN_BYTES;
    let shared = |one: &str, other: &str| {
        one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
    };
    let (mut cached, mut all) = (0, 0);
    for (place, prompt) in prompts.iter().enumerate() {
        let longest = prompts[..place].iter().map(|earlier| shared(prompt, earlier)).max();
        cached += tokens(longest.unwrap_or(0)) / BLOCK_TOKENS * BLOCK_TOKENS;
        all += tokens(prompt.len());
    }
    cached as f64 / all as f64
}

/// The prompts of a conversation as they reach the upstream.
fn converse(
    sim: &Sim,
    gateway: &Gateway,
    customer: Customer,
    model: &str,
    key: bool,
) -> Vec<String> {
    let before = sim.requests().len();
    let mut body = customer.body(model, false);
    customer.add_tool(&mut body);
    if key && customer != Customer::Messages {
        body["prompt_cache_key"] = json!("session");
    }
    for turn in 0..TURNS {
        let answer = call(gateway, customer, &body);
        assert_eq!(answer.status(), 200, "{customer:?} {model} {turn}: {answer:?}");
        let read = customer.read(&answer, false);
        customer.add_result(&mut body, &read.calls[0]);
        customer.add_turn(&mut body, &"Rain, and then some more of it. ".repeat(40));
    }
    let sent = sim.requests().split_off(before);
    assert_eq!(sent.len(), TURNS, "{customer:?} {model}");
    let body = |sent: &tollgate::sim::RecordedRequest| {
        serde_json::from_slice(sent.body.as_deref().expect("a short body")).expect("JSON")
    };
    sent.iter().map(|sent| prompt(&body(sent))).collect()
}

#[test]
fn caches_find_as_much_of_a_translated_conversation_as_of_another() {
    let sim = simulator(&[]);
    for more in ["", "    translated: { caches: true }\n"] {
        let gateway = gateway(sim.addr(), "", more);
        for key in [false, true] {
            for (customer, model) in cells_with_natives() {
                let native = super::settling::native(model);
                let expected = cached_share(&converse(&sim, &gateway, native, model, key));
                let share = cached_share(&converse(&sim, &gateway, customer, model, key));
                let what =
                    format!("{customer:?} {model} {key} {more}: {share:.3} of {expected:.3}");
                assert!(expected > 0.7, "{what}");
                assert!(share >= expected - APART_MAX, "{what}");
            }
        }
    }
}

/// The measure itself: what changes at the beginning of each prompt is found again by no cache.
#[test]
fn a_prompt_that_changes_at_its_beginning_is_not_found_again() {
    let prompts = |changes: bool| -> Vec<String> {
        let begin = |turn: usize| if changes { format!("{turn} ") } else { String::new() };
        (0..TURNS).map(|turn| begin(turn) + &"word ".repeat(400 * (turn + 1))).collect()
    };
    assert!(cached_share(&prompts(false)) > 0.7);
    assert!(cached_share(&prompts(true)) < 0.01);
}
