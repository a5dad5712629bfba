//! Tools with names that an upstream does not take, as Claude Code and Codex send them (codex 46188).

use serde_json::{Value, json};

use super::wire::Customer;
use super::{CELLS, call, gateway};
use crate::harness::simulator;

/// A name of 93 letters, as Claude Code makes it of a plugin, a server and a tool.
const LONG: &str = "mcp__plugin_example-engineering-toolkit_atlassian-jira-confluence__getConfluencePageDescendants";

/// The name with which the upstream was sent the only tool, in its declaration and in each call.
fn sent(body: &str) -> String {
    let body: Value = serde_json::from_str(body).expect("JSON");
    let declarations = [
        "/tools/0/name",
        "/tools/0/function/name",
        "/tools/0/functionDeclarations/0/name",
        "/toolConfig/tools/0/toolSpec/name",
    ];
    let name = declarations.iter().find_map(|path| body.pointer(path)?.as_str());
    name.unwrap_or_else(|| panic!("a tool: {body}")).to_owned()
}

#[test]
fn long_tool_names_are_shortened_upstream_and_restored_downstream() {
    let sim = simulator(&[]);
    let gateway = gateway(sim.addr(), "", "");
    for (customer, model) in CELLS {
        for stream in [false, true] {
            let what = format!("{customer:?} {model} {stream}");
            let before = sim.requests().len();
            let mut body = customer.body(model, stream);
            customer.add_tool(&mut body);
            let mut body: Value = serde_json::from_str(
                &body.to_string().replace("\"weather\"", &json!(LONG).to_string()),
            )
            .expect("JSON");
            let answer = call(&gateway, customer, &body);
            let read = customer.read(&answer, stream);
            let [called] = &read.calls[..] else { panic!("{what}: one call: {answer:?}") };
            assert_eq!(called.name, LONG, "{what}");
            customer.add_result(&mut body, called);
            let answer = call(&gateway, customer, &body);
            assert_eq!(answer.status(), 200, "{what}: {answer:?}");
            let requests = sim.requests().split_off(before);
            let [first, second] = &requests[..] else { panic!("{what}: two requests") };
            let [first, second] = [first, second].map(|sent| {
                String::from_utf8(sent.body.as_deref().expect("a body").to_vec()).expect("text")
            });
            let name = sent(&first);
            assert_eq!(sent(&second), name, "{what}: the same in every turn");
            assert!(second.matches(&name).count() >= 2, "{what}: in the call too: {second}");
            // Anthropic's own API takes 128 letters.
            let (most, is_alias) = if model == "on-messages" { (128, false) } else { (64, true) };
            assert!(name.len() <= most, "{what}: {name}");
            assert_eq!(second.contains(LONG), !is_alias, "{what}: {second}");
        }
    }
}

#[test]
fn a_namespace_of_codex_comes_back_apart_from_a_long_name() {
    let sim = simulator(&[]);
    let gateway = gateway(sim.addr(), "", "");
    let (namespace, name) =
        ("mcp__codex_apps__google_calendar_workspace", "list_upcoming_calendar_events");
    let tool = json!({"type": "function", "name": name, "strict": false,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}});
    for model in ["on-chat", "on-messages", "on-converse", "on-gemini"] {
        for stream in [false, true] {
            let mut body = Customer::Responses.body(model, stream);
            body["tools"] = json!([{"type": "namespace", "name": namespace, "tools": [tool]}]);
            let answer = call(&gateway, Customer::Responses, &body);
            let text = String::from_utf8(answer.content()).expect("text");
            let shown = format!(r#""namespace":"{namespace}","name":"{name}""#);
            assert!(text.contains(&shown), "{model} {stream}: {text}");
        }
    }
}
