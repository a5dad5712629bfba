//! From the configurations of other gateways to ours: `tollgate migrate`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::harness::child::Running;
use crate::harness::{ask, simulator};
use serde_json::{Value, json};

/// Every configuration in `tests/fixtures/litellm/`, and whether all of it can be said in our files.
const FIXTURES: [(&str, bool); 6] = [
    ("priced", true),
    ("balanced", true),
    ("providers", true),
    ("shared_credentials", true),
    ("clouds", true),
    ("partly", false),
];

/// Variables that the fixtures name, and those in the place of keys that are written out.
const VARIABLES: [&str; 15] = [
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "DASHSCOPE_API_KEY",
    "XAI_API_KEY",
    "DEEPSEEK_API_KEY",
    "VOYAGE_API_KEY",
    "GROQ_API_KEY",
    "AZURE_API_KEY",
    "AZURE_API_KEY_EU",
    "AZURE_API_KEY_CA",
    "AZURE_CLIENT_SECRET",
    "COHERE_API_KEY",
    "LITELLM_KEY_1",
    "LITELLM_KEY_2",
];
const SERVICE_ACCOUNT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/google/service_account.json");
const ADMIN_TOKEN: &str = "the-master-key-of-a-test";

fn tollgate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.envs(VARIABLES.map(|name| (name, "a-longer-key-of-a-test")));
    command.envs([
        ("AZURE_API_BASE", "https://example.openai.azure.com"),
        ("LITELLM_MASTER_KEY", ADMIN_TOKEN),
        ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        ("AZURE_TENANT_ID", "example.onmicrosoft.com"),
        ("GOOGLE_APPLICATION_CREDENTIALS", SERVICE_ACCOUNT),
    ]);
    command
}

fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/litellm");
    fixtures.join(format!("{name}.yaml"))
}

fn migrate(name: &str, out: &Path) -> Output {
    let mut command = tollgate();
    command.args(["migrate", "litellm"]).arg(fixture(name)).arg("--out").arg(out);
    command.output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(directory: &Path, file: &str) -> String {
    std::fs::read_to_string(directory.join(file)).expect(file)
}

#[test]
fn what_is_made_passes_the_check_and_the_exit_code_says_what_was_left_out() {
    let files = std::fs::read_dir(fixture("x").parent().expect("a directory")).expect("fixtures");
    assert_eq!(files.count(), FIXTURES.len(), "every fixture is listed");
    for (name, is_whole) in FIXTURES {
        let out = tempfile::tempdir().expect("a directory");
        let migrated = migrate(name, out.path());
        let errors = text(&migrated.stderr);
        let code = if is_whole { 0 } else { 6 };
        assert_eq!(migrated.status.code(), Some(code), "{name}: {errors}");
        assert_eq!(errors.contains("warning:"), !is_whole, "{name}: {errors}");
        let mut check = tollgate();
        check.arg("check").arg("--routes").arg(out.path().join("routes.yaml"));
        let checked = check.arg("--models").arg(out.path().join("models.yaml")).output();
        let checked = checked.expect("the binary runs");
        let printed = text(&checked.stdout) + &text(&checked.stderr);
        assert!(checked.status.success(), "{name}: {printed}");
        assert!(printed.contains("0 warnings"), "{name}: {printed}");
    }
}

#[test]
fn prices_are_exact_targets_are_grouped_and_keys_are_variables() {
    let out = tempfile::tempdir().expect("a directory");
    migrate("priced", out.path());
    let models = read(out.path(), "models.yaml");
    for price in ["input_per_1m_tokens: 0.15\n", "cached_input_per_1m_tokens: 0.075\n", ": 0.02\n"]
    {
        assert!(models.contains(price), "{price:?} in {models}");
    }
    let routes = read(out.path(), "routes.yaml");
    assert_eq!(routes.matches("protocol:").count(), 1, "one upstream for both models: {routes}");
    assert!(routes.contains("credential: \"${OPENAI_API_KEY}\""), "{routes}");
    assert!(routes.contains("tries_max: 4"), "three retries are four tries: {routes}");
    assert!(routes.contains("read: 600s"), "{routes}");

    let out = tempfile::tempdir().expect("a directory");
    migrate("balanced", out.path());
    let models = read(out.path(), "models.yaml");
    for line in [
        "{ upstream: my-endpoint-europe, model: gpt-4o-eu }",
        "{ upstream: my-endpoint-canada, model: gpt-4o-ca, weight: 3 }",
        "fallbacks: [gpt-4o-backup]",
        "requests_per_minute: 240",
        "free: true",
        "  gpt-4:\n",
    ] {
        assert!(models.contains(line), "{line:?} in {models}");
    }
}

/// The fields of one model, without what is above them.
fn model(models: &str, name: &str) -> String {
    let begin = models.split_once(&format!("\n  {name}:\n"));
    let begin = begin.unwrap_or_else(|| panic!("{name} in {models}")).1;
    begin.lines().take_while(|line| line.starts_with("    ")).collect::<Vec<_>>().join("\n")
}

/// A replacement model is a model of its own with its own price.
#[test]
fn a_fallback_is_never_sold_at_the_price_of_another_model() {
    let out = tempfile::tempdir().expect("a directory");
    let errors = text(&migrate("clouds", out.path()).stderr);
    let models = read(out.path(), "models.yaml");
    let cheap = model(&models, "gpt-4o-mini");
    assert_eq!(cheap.matches("upstream:").count(), 1, "no other model's target: {cheap}");
    assert!(cheap.contains("fallbacks: [claude-sonnet-4-5, claude-on-bedrock]"), "{cheap}");
    assert!(cheap.contains("input_per_1m_tokens: 0.15"), "{cheap}");
    let dear = model(&models, "claude-sonnet-4-5");
    assert!(dear.contains("input_per_1m_tokens: 3.00"), "{dear}");
    // The default list is for models without one, and for those that do the same.
    assert!(dear.contains("fallbacks: [llama]"), "{dear}");
    assert!(!model(&models, "whisper").contains("fallbacks"), "{models}");
    assert!(!model(&models, "llama").contains("fallbacks"), "none of its own: {models}");
    assert!(errors.contains("`gpt-4o-mini` is served by `claude-sonnet-4-5`"), "{errors}");
}

/// Each provider is reached over the protocol, and signed in to in the way, that the gateway has for it.
#[test]
fn clouds_and_local_servers_are_reached_in_their_own_ways() {
    let out = tempfile::tempdir().expect("a directory");
    migrate("clouds", out.path());
    let routes = read(out.path(), "routes.yaml");
    for part in [
        "base_url: https://bedrock-runtime.us-east-1.amazonaws.com\n    auth:\n      aws:\n        \
         access_key_id: \"${AWS_ACCESS_KEY_ID}\"",
        "assume_role: { role_arn: arn:aws:iam::123456789012:role/models, session_name: gateway }",
        "https://bedrock-runtime.eu-central-1.amazonaws.com",
        "https://europe-west4-aiplatform.googleapis.com/v1/projects/my-project/locations/europe-west4/\
         publishers/google\n    auth:\n      google:\n        service_account_key: { file: \
         \"${GOOGLE_APPLICATION_CREDENTIALS}\" }",
        "protocol: azure\n    base_url: https://my-endpoint.openai.azure.com/openai/v1\n    auth:\n      \
         entra:",
        "base_url: https://api.cohere.ai/compatibility/v1",
        "base_url: https://api.cohere.com/v2",
        "base_url: http://localhost:11434/v1",
        "headers:\n      HTTP-Referer: https://example.com\n      OpenAI-Organization: org-example",
        "requests_in_flight_max: 500",
    ] {
        assert!(routes.contains(part), "{part}\nin\n{routes}");
    }
    let models = read(out.path(), "models.yaml");
    for (name, part) in [
        ("claude-on-bedrock", "model: us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("claude-on-bedrock", "operations: [chat, messages, responses, generate_content]"),
        ("claude-on-bedrock", "rate_limits: { concurrent_requests: 7 }"),
        ("nova", "model: amazon.nova-pro-v1:0"),
        ("gemini-on-vertex", "operations: [generate_content, chat, messages, responses]"),
        ("cohere-rank", "per_1k_rerank_units: 2"),
        ("whisper", "operations: [transcription, audio_translation]"),
        ("whisper", "per_audio_second: 0.0001"),
        ("draw", "image_input_per_1m_tokens: 10.00"),
        ("draw", "output_per_1m_tokens: 40.00"),
        ("guard", "free: true"),
        ("llama", "free: true"),
    ] {
        assert!(model(&models, name).contains(part), "{name}: {part} in\n{models}");
    }
}

#[test]
fn rankings_keep_the_way_in_which_they_are_billed() {
    let out = tempfile::tempdir().expect("a directory");
    migrate("providers", out.path());
    let models = read(out.path(), "models.yaml");
    for (name, price, other) in [
        ("rank", "input_per_1m_tokens: 0.02", "per_1k_rerank_units"),
        ("rank-by-units", "per_1k_rerank_units: 2.5", "input_per_1m_tokens"),
    ] {
        let written = model(&models, name);
        assert!(written.contains("rerank") && written.contains(price), "{written}");
        assert!(!written.contains(other), "{written}");
    }
}

/// Nothing is dropped in silence, and no secret is copied or shown.
#[test]
fn unsupported_settings_are_listed_with_place_and_reason() {
    let out = tempfile::tempdir().expect("a directory");
    let errors = text(&migrate("partly", out.path()).stderr);
    for (what, place) in [
        ("`temperature` is left out", 8),
        ("`input_cost_per_token_above_128k_tokens` is left out", 11),
        ("`unpriced` is written as a comment", 12),
        ("this target of `no-such-provider` is left out", 18),
        ("the pattern `openai/*` is left out", 20),
        ("this target of `*` is left out", 23),
        ("models of the mode `realtime` are left out", 27),
        ("this target is left out", 31),
        ("`input_cost_per_token` is left out", 34),
        ("`success_callback` is left out", 37),
        ("`context_window_fallbacks` are used when no target can serve, and only then", 40),
        ("the fallback from `priced` to `nowhere` is left out", 41),
        ("the alias `other` is left out", 45),
        ("`database_url` is left out", 49),
        ("`environment_variables` is left out", 51),
    ] {
        let found = errors.split_once(what).unwrap_or_else(|| panic!("{what} in:\n{errors}")).1;
        let at = format!("partly.yaml:{place}:");
        let (first, _) = found.split_once("= help: ").expect("a reason");
        assert!(first.contains(&at), "{what} at line {place}:\n{first}");
    }
    let files = read(out.path(), "routes.yaml") + &read(out.path(), "models.yaml");
    for secret in ["hunter2", "sk-written-out-1234", "sk-1234"] {
        assert!(!files.contains(secret), "{secret} in:\n{files}");
        assert!(!errors.contains(secret), "{secret} in:\n{errors}");
    }
    assert!(files.contains("# unpriced:"), "a model without prices is a comment:\n{files}");
    assert!(files.contains("input_per_1m_tokens: ?"), "it says what to fill in:\n{files}");
}

#[test]
fn files_are_never_replaced_and_what_is_no_configuration_is_refused() {
    let out = tempfile::tempdir().expect("a directory");
    std::fs::write(out.path().join("models.yaml"), "mine").expect("a file");
    let migrated = migrate("priced", out.path());
    assert_eq!(migrated.status.code(), Some(1), "{}", text(&migrated.stderr));
    assert_eq!(read(out.path(), "models.yaml"), "mine");

    for (content, reason) in [
        ("model_list: [\n", "this is not YAML"),
        ("models: {}\n", "there is no `model_list`"),
        ("", "there is no `model_list`"),
    ] {
        let config = out.path().join("config.yaml");
        std::fs::write(&config, content).expect("a file");
        let output = tollgate().args(["migrate", "litellm"]).arg(&config).output();
        let output = output.expect("the binary runs");
        assert_eq!(output.status.code(), Some(1), "{content:?}");
        assert!(text(&output.stderr).contains(reason), "{content:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "nothing is made of {content:?}");
    }
}

/// A migrated configuration serves and bills after changing only the upstream's address.
#[test]
fn a_gateway_serves_what_was_migrated() {
    let out = tempfile::tempdir().expect("a directory");
    migrate("priced", out.path());
    let sim = simulator(&[]);
    let routes = read(out.path(), "routes.yaml");
    let here = routes.replace("https://api.openai.com", &format!("http://{}", sim.addr()));
    assert_ne!(routes, here, "the upstream's address");
    std::fs::write(out.path().join("routes.yaml"), here).expect("a file");
    let mut child = tollgate()
        .args(["serve", "--ready-json", "--log", "warn", "--listen", "127.0.0.1:0"])
        .args(["--admin", "127.0.0.1:0", "--data", "data"])
        .current_dir(out.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("standard output");
    let _running = Running(child);
    BufReader::new(stdout).read_line(&mut line).expect("a line when it is ready");
    let ready: Value = serde_json::from_str(&line).expect("JSON");
    let address = |url: &Value| {
        url.as_str().and_then(|url| url.split_once("://")).expect("a URL").1.to_owned()
    };
    let admin = address(&ready["admin_url"]);
    // The master key is the admin API's token.
    let operator = |arguments: &[&str]| {
        let mut command = tollgate();
        command.args(arguments).args(["--quiet", "--admin", &admin]).current_dir(out.path());
        let output = command.output().expect("the binary runs");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    };
    let account = operator(&["accounts", "create", "migrated"]);
    operator(&["grants", "create", &account, "1.00"]);
    let key = operator(&["keys", "create", &account, "--name", "migrated"]);
    let body = json!({"model": "fast", "messages": [{"role": "user", "content": "Hello!"}]});
    let body = body.to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let listener = address(&ready["listeners"][0]).parse().expect("an address");
    let answer = ask(listener, request.as_bytes());
    assert_eq!(answer.status(), 200, "{}", text(&answer.body()));
    let mut command = tollgate();
    command.args(["accounts", "show", &account, "--json", "--admin", &admin]);
    let shown = command.current_dir(out.path()).output().expect("the binary runs");
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let spent = shown["balance"]["spent"].as_str().expect("an amount");
    let held = shown["balance"]["held"].as_str().expect("an amount");
    assert!(spent != "0.00" || held != "0.00", "the call costs something: {shown}");
}
