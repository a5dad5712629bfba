//! The admin API's OpenAPI document, held against a running gateway, the manual and its own copy; and
//! schemathesis, which makes requests from it that fit and others that do not, and holds each answer
//! against it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Demo, Gateway, ask, python, rounds};
use serde_json::{Value, json};

/// Nobody listens there: no model is called.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

fn in_repository(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Every path of a document with its methods, in capitals.
fn operations(document: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let paths = document["paths"].as_object().expect("paths");
    let methods = |path: &Value| {
        let methods = path.as_object().expect("methods").keys();
        methods.map(|method| method.to_ascii_uppercase()).collect()
    };
    paths.iter().map(|(path, operations)| (path.clone(), methods(operations))).collect()
}

/// A path with ids that are well formed and name nothing.
fn concrete(path: &str) -> String {
    path.replace("{account}", "acct_0000000000000000")
        .replace("{request}", "req_00000000000000000000000000000000")
        .replace("{key}", "key_0000000000000000")
        .replace("{task}", "gt_00000000000000000000000000000000")
        .replace("{hold}", "hold_0000000000000000")
        .replace("{code}", "code_0000000000000000")
        .replace("{group}", "none")
}

#[test]
fn the_document_and_the_routes_are_the_same() {
    let gateway = Gateway::start(NOWHERE);
    let answer = ask(gateway.admin, b"GET /openapi.json HTTP/1.1\r\nhost: admin\r\n\r\n");
    assert_eq!(answer.status(), 200, "it asks for no token");
    let document = answer.json();
    assert_eq!(document, tollgate::admin::openapi_document());
    for (path, methods) in operations(&document) {
        let target = concrete(&path);
        assert!(!target.contains('{'), "{path} has a name that this test does not know");
        for method in &methods {
            let answer = gateway.admin_answer(method, &target, &json!(null));
            assert_ne!(answer.status(), 405, "{method} {path}");
            let text = String::from_utf8_lossy(&answer.content()).into_owned();
            assert!(!text.contains("There is nothing at"), "{method} {path}: {text}");
        }
        // What the router takes besides is not described.
        let answer = gateway.admin_answer("DELETE", &target, &json!(null));
        assert_eq!(answer.status(), 405, "DELETE {path}");
        let allowed = answer.header("allow").expect("what it takes");
        let mut allowed: BTreeSet<_> = allowed.split(',').map(ToOwned::to_owned).collect();
        allowed.remove("HEAD");
        assert_eq!(allowed, methods, "{path} takes what the document says");
    }
}

/// True if the copy is written instead of compared.
#[expect(clippy::disallowed_methods, reason = "a switch of this test, not of the gateway")]
fn renews_expectations() -> bool {
    std::env::var_os("UPDATE_EXPECTED").is_some()
}

#[test]
fn the_committed_document_is_that_of_the_code() {
    let path = in_repository("docs/schema/admin.openapi.json");
    let document = tollgate::admin::openapi_document();
    let current = format!("{}\n", serde_json::to_string_pretty(&document).expect("JSON"));
    if renews_expectations() {
        fs::write(&path, &current).expect("the document is written");
    }
    let committed = fs::read_to_string(&path).expect("a committed document");
    assert!(committed == current, "run this test with UPDATE_EXPECTED=1 to renew {path:?}");
}

#[test]
fn the_manual_has_a_chapter_for_each_operation_and_no_other() {
    let manual = fs::read_to_string(in_repository("docs/admin-api.md")).expect("the manual");
    let chapters: BTreeSet<_> = manual
        .lines()
        .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'))
        .map(ToOwned::to_owned)
        .collect();
    let described: BTreeSet<_> = operations(&tollgate::admin::openapi_document())
        .into_iter()
        .flat_map(|(path, methods)| {
            methods.into_iter().map(move |method| format!("{method} {path}"))
        })
        .collect();
    assert_eq!(chapters, described);
}

/// Seed of schemathesis. The same seed generates the same cases.
const SEED: &str = "20260731";
/// Cases of each operation in a whole run; all of them take a minute on two cores.
const CASES: u64 = 20;
/// Within this, it has told what it found.
const TIME_MAX: Duration = Duration::from_secs(180);

/// The operations whose answer has no end to wait for.
fn endless(document: &Value) -> Vec<&str> {
    let paths = document["paths"].as_object().expect("paths").values();
    let operations = paths.flat_map(|path| path.as_object().expect("methods").values());
    operations
        .filter(|one| !one["responses"]["200"]["content"]["text/event-stream"].is_null())
        .map(|one| one["operationId"].as_str().expect("a name"))
        .collect()
}

#[test]
#[ignore = "a proof: thousands of generated requests"]
fn every_answer_is_as_the_document_says() {
    let cases = rounds(CASES);
    let venv = python::environment();
    let demo = Demo::start();
    let document = tollgate::admin::openapi_document();
    let endless = endless(&document);
    let began = Instant::now();
    let output = Command::new("timeout")
        .arg(TIME_MAX.as_secs().to_string())
        .arg(venv.join("bin/schemathesis"))
        .args(["--config-file", "tests/python/schemathesis.toml", "run"])
        .args(["docs/schema/admin.openapi.json", "--url", &demo.admin_url])
        .args(["--header", &format!("Authorization: Bearer {}", demo.admin_token)])
        .args([
            "--seed",
            SEED,
            "--max-examples",
            &cases.to_string(),
            "--generation-database",
            "none",
        ])
        .args(["--no-color", "--warnings", "off"])
        .args(endless.iter().flat_map(|id| ["--exclude-operation-id", id]))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("timeout of GNU's coreutils runs");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "after {:?}:\n{text}\n{errors}", began.elapsed());
    let count = operations(&document).values().flatten().count() - endless.len();
    assert!(text.contains(&format!("Tested: {count}")), "all {count} operations:\n{text}");
    for phase in ["Examples", "Coverage", "Fuzzing", "Stateful"] {
        assert!(text.contains(&format!("✅ {phase}")), "{phase}:\n{text}");
    }
    let generated = text.lines().find_map(|line| line.trim().split_once(" generated"));
    let generated = generated.and_then(|(count, _)| count.parse::<u64>().ok());
    // A thousand in a whole run.
    assert!(generated.is_some_and(|count| count >= 50 * cases), "{cases} of each:\n{text}");
}
