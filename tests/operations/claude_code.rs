//! Claude Code, headless, with the gateway as its base address.

use std::process::{Command, Stdio};

use crate::harness::{Admin, Demo, node};

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_answered_and_billed() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("10.00").await;
    let home = tempfile::tempdir().expect("a directory");
    let commands = node::commands();
    let output = Command::new(commands[0].join("claude"))
        .args(["-p", "Say hello."])
        .current_dir(home.path())
        .env_clear()
        .env("PATH", node::path(&commands))
        .env("HOME", home.path())
        .env("ANTHROPIC_BASE_URL", &demo.base_url)
        .env("ANTHROPIC_AUTH_TOKEN", &customer.key)
        .env("ANTHROPIC_MODEL", "claude-sonnet-4-5")
        // Nothing but the gateway is to be called.
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        .stdin(Stdio::null())
        .output()
        .expect("claude runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("Simulated upstreams answer"), "{text}\n{errors}");
    let balance = admin.settled(&customer.account).await;
    assert!(balance.spent > 0, "the prompt was billed: {balance:?}");
    let settlements = admin.settlements(&customer.account).await;
    let by_report = settlements.iter().all(|one| one["usage_source"] == "upstream");
    assert!(!settlements.is_empty() && by_report, "{settlements:?}");
}
