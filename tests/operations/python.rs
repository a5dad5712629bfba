//! The official Python SDKs of OpenAI and Anthropic, and LangChain over the first, against the running
//! binary. Installs them into a virtual environment of its own at the first run.

use std::process::Command;

use crate::harness::{Demo, python};

/// The tests that the Python files hold: a run that finds fewer has lost some.
const TESTS: usize = 73;

#[test]
fn the_official_sdks_work_unmodified() {
    let venv = python::environment();
    let demo = Demo::start();
    let output = Command::new(venv.join("bin/python"))
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/python"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("TOLLGATE_BASE_URL", &demo.base_url)
        .env("TOLLGATE_ADMIN_URL", &demo.admin_url)
        .env("TOLLGATE_ADMIN_TOKEN", &demo.admin_token)
        .env("TOLLGATE_API_KEY", &demo.api_key)
        .output()
        .expect("python runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(&format!("{TESTS} passed")), "expected {TESTS} tests:\n{text}");
}
