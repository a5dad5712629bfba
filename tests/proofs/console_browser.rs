//! The customers' console in a real browser, driven by Playwright. Needs Chromium, which
//! `bash .ci/install` installs: `cargo test --test proofs -- --ignored console_browser::`.
//!
//! `TOLLGATE_SCREENSHOTS` names a directory that gets a picture of every page, light and dark, on a
//! desk and on a phone.

use std::path::Path;
use std::process::{Command, Output};

use crate::harness::{Demo, node, python, tool};
use serde_json::Value;

/// Runs a script of `tests/node` with these arguments, and gives what it prints as JSON.
fn run(script: &str, arguments: &[&str]) -> Value {
    let commands = node::commands();
    let packages = commands[0].parent().expect("node_modules");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node").join(script);
    let output = Command::new(commands[1].join("node"))
        .arg(script)
        .args(arguments)
        .env("PATH", node::path(&commands))
        .env("NODE_PATH", packages)
        .output()
        .expect("node runs");
    serde_json::from_str(&succeeded(&output)).expect("JSON")
}

/// Standard output of a command that must succeed.
fn succeeded(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
#[ignore = "needs Chromium: bash .ci/install"]
#[expect(clippy::disallowed_methods, reason = "whoever runs the test says where pictures go")]
fn a_customer_signs_up_calls_sees_the_bill_and_revokes() {
    let demo = Demo::start();
    let chromium = tool("chromium");
    let chromium = chromium.get_program().to_str().expect("text");
    let pictures = std::env::var("TOLLGATE_SCREENSHOTS").unwrap_or_default();
    if !pictures.is_empty() {
        std::fs::create_dir_all(&pictures).expect("a directory for pictures");
    }
    let done = run("console.cjs", &[&demo.base_url, chromium, &pictures]);
    // What the page gives as code runs elsewhere, with the key that was made last.
    let key = done["key"].as_str().expect("a key");
    let code = |language: &str| done["code"][language].as_str().expect("code").to_owned();
    let directory = tempfile::tempdir().expect("a directory");
    let module = directory.path().join("call.mjs");
    std::fs::write(&module, code("JavaScript")).expect("written");
    let python = python::environment().join("bin/python");
    let node = node::commands()[1].join("node");
    for (what, mut command) in [
        ("curl", with(Command::new("bash"), &["-c", &code("curl")])),
        ("Python", with(Command::new(python), &["-c", &code("Python")])),
        ("JavaScript", with(Command::new(node), &[module.to_str().expect("text")])),
    ] {
        let output = command.env("TOLLGATE_KEY", key).output().expect("it runs");
        let printed = succeeded(&output);
        assert!(printed.contains("upstreams"), "{what}: {printed}");
    }
}

fn with(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments);
    command
}
