//! Clients that nobody has changed, on models whose providers speak another protocol than the client does:
//! sessions of many turns with tools, without a fall-back and without a delta that is lost. Codex is in
//! `codex.rs`, LangChain and the official SDKs in `tests/python/`.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Admin, Demo, node};

/// Sold by a provider that speaks chat completions only, and by one that speaks responses.
const CHAT_ONLY: &str = "deepseek-v4-flash";
const RESPONSES_ONLY: &str = "gpt-5-mini";
/// Sessions of the script, one for each pair of protocols.
const SESSIONS: usize = 6;
/// Prompts of a session of a program that is started for each.
const PROMPTS: usize = 10;

/// Output of a command that succeeds.
fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    text
}

/// Every call of the customer was settled by what an upstream reported.
async fn check_settled(admin: &Admin, account: &str, calls_min: usize) {
    let balance = admin.settled(account).await;
    assert!(balance.spent > 0, "{balance:?}");
    let settlements = admin.settlements(account).await;
    let by_report = settlements.iter().all(|one| one["usage_source"] == "upstream");
    assert!(settlements.len() >= calls_min && by_report, "{settlements:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn vercels_ai_sdk_finishes_sessions_in_every_cell() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("10.00").await;
    let commands = node::commands();
    let packages = commands[0].ancestors().nth(2).expect("the packages' directory");
    let script = packages.join("ai_sdk.mjs");
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/ai_sdk.mjs"), &script)
        .expect("the script is copied");
    let mut node = Command::new(commands[1].join("node"));
    node.arg(script)
        .env("TOLLGATE_BASE_URL", &demo.base_url)
        .env("TOLLGATE_API_KEY", &customer.key);
    let text = run(&mut node);
    assert_eq!(text.matches(": 20 turns").count(), SESSIONS, "{text}");
    check_settled(&admin, &customer.account, SESSIONS * 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_code_holds_sessions_with_models_of_others() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let commands = node::commands();
    for model in [CHAT_ONLY, RESPONSES_ONLY] {
        let customer = admin.customer("10.00").await;
        let home = tempfile::tempdir().expect("a directory");
        for prompt in 0..PROMPTS {
            let mut claude = Command::new(commands[0].join("claude"));
            claude.args(["-p", &format!("Say hello for the {prompt}th time.")]);
            if prompt > 0 {
                claude.arg("--continue");
            }
            let environment = claude.current_dir(home.path()).env_clear();
            environment
                .env("PATH", node::path(&commands))
                .env("HOME", home.path())
                .env("ANTHROPIC_BASE_URL", &demo.base_url)
                .env("ANTHROPIC_AUTH_TOKEN", &customer.key)
                .env("ANTHROPIC_MODEL", model)
                .env("ANTHROPIC_DEFAULT_HAIKU_MODEL", model)
                .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
                .env("DISABLE_AUTOUPDATER", "1");
            let text = run(&mut claude);
            assert!(text.contains("Simulated upstreams answer"), "{model} {prompt}: {text}");
        }
        check_settled(&admin, &customer.account, 2 * PROMPTS).await;
    }
}

/// Settings with which Google's command line signs in with a key and sends no telemetry.
const GEMINI_SETTINGS: &str = r#"{
  "security": {"auth": {"selectedType": "gemini-api-key"}},
  "privacy": {"usageStatisticsEnabled": false},
  "general": {"disableAutoUpdate": true}
}"#;

#[tokio::test(flavor = "multi_thread")]
async fn gemini_cli_holds_sessions_with_models_of_others() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let commands = node::commands();
    for model in ["gemini-2.5-pro", CHAT_ONLY, RESPONSES_ONLY, "claude-sonnet-4-5"] {
        let customer = admin.customer("10.00").await;
        let home = tempfile::tempdir().expect("a directory");
        let settings = home.path().join(".gemini");
        std::fs::create_dir(&settings).expect("a directory");
        std::fs::write(settings.join("settings.json"), GEMINI_SETTINGS).expect("its settings");
        for prompt in ["Say hello.", "And once more."] {
            let mut gemini = Command::new(commands[0].join("gemini"));
            gemini.args(["-m", model, "-p", prompt]);
            if prompt != "Say hello." {
                gemini.args(["--resume", "latest"]);
            }
            let environment = gemini.current_dir(home.path()).env_clear();
            environment
                .env("PATH", node::path(&commands))
                .env("HOME", home.path())
                .env("GOOGLE_GEMINI_BASE_URL", &demo.base_url)
                .env("GEMINI_API_KEY", &customer.key)
                .env("GEMINI_CLI_TRUST_WORKSPACE", "true");
            let text = run(&mut gemini);
            assert!(text.contains("Simulated upstreams answer"), "{model} {prompt}: {text}");
        }
        check_settled(&admin, &customer.account, 2).await;
    }
}
