//! A test of this binary in a process of its own.

use std::process::{Command, Stdio};

/// Set in a process that [`alone`] started: the test that it runs.
const ALONE: &str = "TOLLGATE_TEST_ALONE";

/// A command that runs one test of this binary, also one that is ignored, and shows what it prints.
/// `module` is what `module_path!` says where the test is defined.
pub(crate) fn test_process(module: &str, test: &str) -> Command {
    let (_, module) = module.split_once("::").expect("tests are in modules");
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "--include-ignored", "--nocapture", &format!("{module}::{test}")]);
    command
}

/// True if this process was started to run this test and no other. In any other process the test is run
/// in one of its own, and fails as it does there: for tests that change or measure the whole process.
#[expect(clippy::disallowed_methods, reason = "a test tells its own child what it is")]
pub(crate) fn alone(module: &str, test: &str) -> bool {
    if std::env::var(ALONE).is_ok_and(|name| name == test) {
        return true;
    }
    let mut command = test_process(module, test);
    let output = command.env(ALONE, test).stdin(Stdio::null()).output().expect("this binary runs");
    let (text_found, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text_found}{errors}");
    assert!(output.status.success(), "{test} failed in a process of its own: {}", output.status);
    assert!(text_found.contains("1 passed"), "{test} was not run");
    false
}
