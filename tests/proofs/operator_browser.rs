//! The operators' console in a real browser, driven by Playwright. Needs Chromium, which
//! `bash .ci/install` installs: `cargo test --test proofs -- --ignored operator_browser::`.
//!
//! `TOLLGATE_SCREENSHOTS` names a directory that gets a picture of every page, light and dark, on a
//! desk and on a phone.

use std::path::Path;
use std::process::Command;

use crate::harness::{Demo, node, tool};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium: bash .ci/install"]
#[expect(clippy::disallowed_methods, reason = "whoever runs the test says where pictures go")]
async fn an_operator_grants_suspends_resolves_and_looks_on() {
    let data = tempfile::tempdir().expect("a directory");
    {
        // A call that kill -9 cuts off: it is in doubt from then on.
        let mut demo = Demo::on(data.path());
        let body = json!({
            "model": "gpt-4o-mini",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": true,
        });
        let slow = demo.post("/v1/chat/completions", &body, "chunks:200 words:1 interval-ms:50");
        let answer = slow.bearer_auth(&demo.api_key).send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        demo.process.kill();
    }
    let demo = Demo::on(data.path());
    let pictures = std::env::var("TOLLGATE_SCREENSHOTS").unwrap_or_default();
    if !pictures.is_empty() {
        std::fs::create_dir_all(&pictures).expect("a directory for pictures");
    }
    let commands = node::commands();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/operator.cjs");
    let chromium = tool("chromium");
    let output = Command::new(commands[1].join("node"))
        .arg(script)
        .args([&demo.admin_url, &demo.admin_token, &demo.base_url, &demo.api_key])
        .arg(chromium.get_program())
        .arg(&pictures)
        .env("PATH", node::path(&commands))
        .env("NODE_PATH", commands[0].parent().expect("node_modules"))
        .output()
        .expect("node runs");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert_eq!(out.trim(), "done", "{err}");
}
