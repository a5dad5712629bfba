//! The official clients of the Model Context Protocol, unmodified, against the running binary: two
//! versions of the Python SDK, two of the TypeScript SDK, the official conformance suite and Claude
//! Code.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::child::Running;
use crate::harness::{Admin, Demo, Gateway, Recorder, node, python};

const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp_clients");

/// Runs a client against the demo, and gives what it says.
fn run(demo: &Demo, command: &mut Command) -> String {
    let output = command
        .env("MCP_URL", format!("{}/mcp", demo.base_url))
        .env("TOLLGATE_API_KEY", &demo.api_key)
        .output()
        .expect("the client runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}\n{errors}");
    text
}

#[test]
fn both_versions_of_the_python_sdk_work() {
    let demo = Demo::start();
    for (version, message) in [(1, "python 1: ok"), (2, "python 2: ok 2026-07-28 2025-11-25")] {
        let name = format!("python-mcp-{version}");
        let pins = format!("tests/mcp_clients/python{version}.txt");
        let python = python::environment_of(&name, &pins).join("bin/python");
        let text = run(&demo, Command::new(python).arg(format!("{CLIENTS}/python{version}.py")));
        assert!(text.contains(message), "{text}");
    }
    // The program of the documentation, as it stands there.
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/mcp.md");
    let docs = std::fs::read_to_string(docs).expect("the documentation");
    let program = docs.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    let python = python::environment_of("python-mcp-2", "tests/mcp_clients/python2.txt");
    let mut command = Command::new(python.join("bin/python"));
    command.args(["-c", program.expect("a program")]);
    command.env("BASE", &demo.base_url).env("KEY", &demo.api_key);
    assert!(run(&demo, &mut command).contains("Simulated upstreams"));
}

/// A script of the clients where Node finds the packages: beside them.
fn script(name: &str, commands: &[std::path::PathBuf; 2]) -> std::path::PathBuf {
    let packages = commands[0].ancestors().nth(2).expect("the packages' directory");
    let copy = packages.join(name);
    std::fs::copy(Path::new(CLIENTS).join(name), &copy).expect("the script is copied");
    copy
}

#[test]
fn both_versions_of_the_typescript_sdk_work() {
    let demo = Demo::start();
    let commands = node::commands();
    let mut node = Command::new(commands[1].join("node"));
    let text = run(&demo, node.arg(script("typescript.mjs", &commands)));
    for message in ["typescript 1: ok", "typescript 2: ok", "both are refused without a key"] {
        assert!(text.contains(message), "{text}");
    }
}

/// The scenarios that need nothing of a server but what the protocol asks of all, and how many checks
/// each makes.
const SCENARIOS: [(&str, usize); 7] = [
    ("server-initialize", 1),
    ("ping", 1),
    ("tools-list", 1),
    ("dns-rebinding-protection", 2),
    ("resources-list", 1),
    ("prompts-list", 1),
    ("completion-complete", 1),
];

#[test]
fn the_official_conformance_suite_passes() {
    let recorder = Recorder::start();
    let settings = "mcp:
  allowed_hosts: [localhost, 127.0.0.1]
  allowed_origins: ['http://localhost:*', 'http://127.0.0.1:*']
";
    let gateway = Gateway::start_with(recorder.address, settings);
    let commands = node::commands();
    // The suite cannot send a key.
    let mut keyed = Command::new(commands[1].join("node"))
        .arg(Path::new(CLIENTS).join("keyed.mjs"))
        .env("MCP_URL", format!("http://{}/mcp", gateway.address))
        .env("TOLLGATE_API_KEY", &gateway.key)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node runs");
    let stdout = keyed.stdout.take().expect("standard output is piped");
    let _keyed = Running(keyed);
    let url = BufReader::new(stdout).lines().next().expect("a line").expect("text");
    let mut checks = 0;
    for (scenario, expected) in SCENARIOS {
        let output = Command::new(commands[0].join("conformance"))
            .args(["server", "--url", &url, "--scenario", scenario])
            .env("PATH", node::path(&commands[1..]))
            .output()
            .expect("the suite runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let passed = format!("Passed: {expected}/{expected}, 0 failed, 0 warnings");
        assert!(output.status.success() && text.contains(&passed), "{scenario}: {text}");
        checks += expected;
    }
    assert_eq!(checks, 8, "all checks were made");
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_code_connects() {
    let demo = Demo::start();
    let customer = Admin::of(&demo).customer("10.00").await;
    let home = tempfile::tempdir().expect("a directory");
    let commands = node::commands();
    let claude = |arguments: &[&str]| {
        let output = Command::new(commands[0].join("claude"))
            .args(arguments)
            .current_dir(home.path())
            .env_clear()
            .env("PATH", node::path(&commands))
            .env("HOME", home.path())
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .env("DISABLE_AUTOUPDATER", "1")
            .stdin(Stdio::null())
            .output()
            .expect("claude runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        text
    };
    let url = format!("{}/mcp", demo.base_url);
    let header = format!("Authorization: Bearer {}", customer.key);
    // As docs/mcp.md has it.
    claude(&["mcp", "add", "--transport", "http", "tollgate", &url, "--header", &header]);
    let listed = claude(&["mcp", "list"]);
    assert!(listed.contains("tollgate") && listed.contains("Connected"), "{listed}");
}
