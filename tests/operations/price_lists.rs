//! `models.yaml` against a pinned price list: what the list has and we have not, somebody has looked at.
//!
//! `tests/drift/litellm.json` has the entries for our models of LiteLLM's list, as it is packed into its
//! release 1.110.2 of November 2026. What is missing on purpose is in `tests/drift/prices.json`, with a
//! reason and a date; an entry there that nothing needs is a fault as well.

use std::collections::BTreeSet;
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;

/// Prices that we leave out for one reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Omission {
    /// Why they are not in `models.yaml`.
    reason: String,
    /// The day on which somebody looked.
    date: String,
    /// The models, each with a price and what it depends on, as `missing` prints them.
    prices: Vec<String>,
}

/// A row of `missing` as one line: the model, the price, and its conditions.
fn line(row: &Value) -> String {
    let word = |key: &str| row[key].as_str().expect("a word").to_owned();
    let mut line = format!("{} {}", word("model"), word("price"));
    for (name, value) in row["when"].as_object().expect("conditions") {
        line.push_str(&format!(" {name}={}", value.as_str().expect("a value")));
    }
    line
}

#[test]
fn every_price_of_a_pinned_list_is_ours_or_left_out_for_a_reason() {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["models", "sync", "--json", "--models", "models.yaml"])
        .args(["--from", "tests/drift/litellm.json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("the binary runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{errors}"));
    let missing: BTreeSet<String> =
        report["missing"].as_array().expect("rows").iter().map(line).collect();
    let omissions: Vec<Omission> =
        serde_json::from_str(include_str!("../drift/prices.json")).expect("prices.json");
    let mut left_out = BTreeSet::new();
    for Omission { reason, date, prices } in omissions {
        assert!(reason.len() > 20 && date.len() == 10, "{reason:?} of {date:?}");
        for price in prices {
            assert!(left_out.insert(price.clone()), "{price} is listed twice");
        }
    }
    let found = |all: &BTreeSet<String>, existing: &BTreeSet<String>| {
        all.difference(existing).cloned().collect::<Vec<_>>().join("\n")
    };
    let (new, stale) = (found(&missing, &left_out), found(&left_out, &missing));
    assert!(new.is_empty(), "price these in models.yaml, or say why not:\n{new}");
    assert!(stale.is_empty(), "these are not missing any more:\n{stale}");
    let models = report["not_found"].as_array().expect("models").len();
    assert!(models < 60, "the list has most of our models, not all but {models}");
}
