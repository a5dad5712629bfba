//! The billing-conformance suite in `tests/billing/` against the running binary: what upstreams bill is
//! what customers are charged. docs/billing-conformance.md says what it shows.

use std::process::Command;

use crate::harness::python;

/// A run that finds fewer has lost some.
const VECTORS_MIN: usize = 400;
/// Vectors that chance makes up, beside those of the tables. The seed is printed.
const RANDOM_VECTORS: &str = "200";

#[test]
fn what_upstreams_bill_is_charged() {
    let venv = python::environment_of("billing-venv", "tests/billing/requirements.txt");
    let output = Command::new(venv.join("bin/python"))
        .args(["-B", "-m", "billing", "--random", RANDOM_VECTORS])
        .args(["--binary", env!("CARGO_BIN_EXE_tollgate")])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"))
        .output()
        .expect("python runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    let [run, passed, failed, skipped] = summary(&text);
    assert!(run >= VECTORS_MIN, "{run} vectors were run, not {VECTORS_MIN}:\n{text}");
    assert_eq!((passed, failed, skipped), (run, 0, 0), "{text}");
    println!("{text}");
}

/// The figures of the last line: how many were run, passed, failed and skipped.
fn summary(text: &str) -> [usize; 4] {
    let line = text.lines().last().and_then(|line| line.strip_prefix("billing: "));
    let words = line.unwrap_or_else(|| panic!("no summary in:\n{text}")).split(' ');
    let numbers = words.filter_map(|word| word.parse().ok());
    let found: Vec<usize> = numbers.take(4).collect();
    found.try_into().unwrap_or_else(|_| panic!("no summary in:\n{text}"))
}
