//! What agents send, as an inventory of keys, types and headers without any content: of the pinned versions in
//! `tests/clients/sent/`, and of the newest ones in comparison.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::node;

use super::agent::Agent;
use super::cell;
use super::script::Answered;
use super::versions;

/// Where a customer's own keys begin: schemas, inputs and metadata.
const OPAQUE: [&str; 9] = [
    "parameters",
    "input_schema",
    "parametersJsonSchema",
    "args",
    "arguments",
    "response",
    "metadata",
    "client_metadata",
    "definition",
];
/// Headers that HTTP libraries make, whose presence says nothing.
const OWN_HEADERS: [&str; 6] =
    ["host", "content-length", "authorization", "x-api-key", "connection", "user-agent"];

/// The agents with the names under which they send something of their own.
const SENDERS: [(Agent, &str, &str); 7] = [
    (Agent::ClaudeCode, "claude-opus-4-8", "claude-code"),
    (Agent::CodexHttp, "gpt-5.6-sol", "codex-gpt-5.6-sol"),
    (Agent::CodexHttp, "gpt-5.5", "codex-gpt-5.5"),
    (Agent::OpencodeChat, "claude-sonnet-5", "opencode-chat"),
    (Agent::OpencodeResponses, "gpt-5.5", "opencode-responses"),
    (Agent::OpencodeMessages, "claude-opus-4-8", "opencode-messages"),
    (Agent::GeminiCli, "gemini-2.5-pro", "gemini-cli"),
];

/// The shapes of all requests of a session.
fn inventory(answered: &[Answered]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for one in answered {
        shapes("", &one.request.body, &mut all);
        for (name, value) in &one.request.headers {
            if OWN_HEADERS.contains(&name.as_str()) {
                continue;
            }
            all.insert(format!("header {name}"));
            if name == "anthropic-beta" {
                let betas = value.to_str().unwrap_or_default().split(',');
                all.extend(betas.map(|beta| format!("header {name}: {}", beta.trim())));
            }
        }
    }
    all
}

fn shapes(path: &str, value: &Value, all: &mut BTreeSet<String>) {
    match value {
        Value::Array(elements) => {
            elements.iter().for_each(|element| shapes(&format!("{path}[]"), element, all));
        }
        Value::Object(members) => {
            let is_tool_use = members.get("type").is_some_and(|kind| kind == "tool_use");
            for (key, value) in members {
                let path = format!("{path}.{key}");
                if key == "type" && value.is_string() {
                    all.insert(format!("{path} = {}", value.as_str().unwrap_or_default()));
                    continue;
                }
                all.insert(path.clone());
                if !OPAQUE.contains(&key.as_str()) && !(is_tool_use && key == "input") {
                    shapes(&path, value, all);
                }
            }
        }
        _ => {}
    }
}

#[test]
#[ignore = "it plays seven sessions; run it when a version is pinned"]
fn pinned_versions_send_what_the_inventory_has() {
    let commands = node::commands();
    for (agent, model, name) in SENDERS {
        let found = inventory(&cell::sent(agent, &commands, model));
        let text = serde_json::to_string_pretty(&found).expect("JSON") + "\n";
        versions::expect(&format!("tests/clients/sent/{name}.json"), &text);
    }
}

/// The newest versions of all agents, in a directory of their own.
fn newest() -> [PathBuf; 2] {
    let [_, node] = node::commands();
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("node-newest");
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("package.json"), "{\"private\": true}").expect("a file");
    let packages = versions::clients().into_iter().filter_map(|client| client.npm);
    let status = Command::new(node.join("npm"))
        .args(["install", "--silent", "--no-audit", "--no-fund"])
        .args(packages.map(|name| format!("{name}@latest")))
        .current_dir(&directory)
        .env("PATH", node::path(std::slice::from_ref(&node)))
        .status();
    assert!(status.is_ok_and(|status| status.success()), "npm reaches a registry");
    [directory.join("node_modules/.bin"), node]
}

/// Fails with a list where a newest version sends what the pinned one did not.
#[test]
#[ignore = "it installs the newest versions; docs/clients.md has the command"]
fn newest_versions_send_nothing_new() {
    let commands = newest();
    let mut report = Vec::new();
    for (agent, model, name) in SENDERS {
        let path = versions::path(&format!("tests/clients/sent/{name}.json"));
        let known = std::fs::read_to_string(path).expect("the inventory");
        let known: BTreeSet<String> = serde_json::from_str(&known).expect("a list");
        let found = inventory(&cell::sent(agent, &commands, model));
        report.extend(found.difference(&known).map(|new| format!("{name} sends {new}")));
        report.extend(known.difference(&found).map(|old| format!("{name} no longer sends {old}")));
    }
    assert!(report.is_empty(), "{}", report.join("\n"));
}
