//! The official OpenAI Python SDK against the running binary. Installs the SDK into a virtual
//! environment of its own at the first run.

mod harness;

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::Demo;

/// The tests that the Python files hold: a run that finds fewer has lost some.
const TESTS: usize = 9;

/// A virtual environment with the pinned packages, made anew when the pins change.
fn environment() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pins = root.join("tests/python/requirements.txt");
    let venv = root.join("target/python-venv");
    let stamp = venv.join("requirements.txt");
    let wanted = std::fs::read(&pins).expect("the pins");
    if std::fs::read(&stamp).ok().as_ref() != Some(&wanted) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv), "install Python 3 with its venv module (Debian: apt-get install python3-venv)");
        run(
            Command::new(venv.join("bin/python"))
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
                .arg(&pins),
            "check that pip reaches a package index, then run the test again",
        );
        std::fs::write(&stamp, wanted).expect("the stamp");
    }
    venv
}

fn run(command: &mut Command, remedy: &str) {
    let done = command.status().is_ok_and(|status| status.success());
    assert!(done, "{command:?} failed; {remedy}");
}

#[test]
fn the_official_sdk_works_unmodified() {
    let venv = environment();
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
