//! Style as a test: what ARCHITECTURE.md promises about the code is checked here.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_below(directory: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![root().join(directory)];
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(&path).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no .{extension} files below {directory}");
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned()
}

/// The code of a file without comments and without its unit tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("text");
    let before_tests = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code_lines = before_tests.lines().filter(|line| !line.trim_start().starts_with("//"));
    code_lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn only_one_place_names_each_heavy_dependency() {
    for (name, allowed) in [
        ("sled::", &["src/ledger/store"][..]),
        ("serde_yaml::", &["src/config/"]),
        ("prometheus::", &["src/metrics"]),
        ("pingora::", &["src/gateway/", "src/cli/"]),
        ("reqwest::", &["src/outbound.rs"]),
        ("opentelemetry", &["src/traces.rs"]),
        ("axum::", &["src/admin/", "src/console/", "src/sim/", "src/web/"]),
        ("askama::", &["src/admin/console/", "src/console/", "src/web/"]),
        ("argon2::", &["src/password.rs"]),
        (
            "StatusCode",
            &[
                "src/gateway/respond.rs",
                "src/admin/",
                "src/console/",
                // It answers before there is a request to fail.
                "src/mcp/door.rs",
                "src/sim/",
                "src/web/",
            ],
        ),
        ("rmcp::", &["src/mcp/"]),
        ("tokio_postgres", &["src/fleet/postgres"]),
        ("deadpool_postgres", &["src/fleet/postgres"]),
    ] {
        for path in files_below("src", "rs") {
            let file = relative(&path);
            if allowed.iter().any(|prefix| file.starts_with(prefix)) {
                continue;
            }
            assert!(!code(&path).contains(name), "{file} names {name}; only {allowed:?} may");
        }
    }
}

#[test]
fn imports_point_one_way() {
    // Each module may name those behind it, and `error`, `money`, `price`, `clock`, `secret`.
    let forbidden = [
        (
            "src/protocols/",
            &["gateway", "pipeline", "ledger", "config", "admin", "cli", "balance"][..],
        ),
        (
            "src/ledger/",
            &["gateway", "pipeline", "protocols", "config", "admin", "cli", "balance", "metrics"],
        ),
        (
            "src/balance/",
            &["gateway", "pipeline", "protocols", "ledger", "admin", "cli", "metrics"],
        ),
        (
            "src/limits/",
            &["gateway", "pipeline", "protocols", "ledger", "config", "admin", "cli", "metrics"],
        ),
        ("src/config/", &["gateway", "pipeline", "admin", "cli", "balance", "metrics"]),
        ("src/pipeline/", &["gateway", "admin", "cli", "metrics"]),
        ("src/gateway/", &["admin", "cli", "console", "mcp", "sim", "web"]),
        ("src/admin/", &["gateway", "pipeline", "cli", "console", "mcp", "sim"]),
        ("src/console/", &["pipeline", "cli", "mcp", "sim", "admin"]),
        (
            "src/mcp/",
            &["admin", "balance", "cli", "console", "metrics", "pipeline", "sim", "tasks", "web"],
        ),
        ("src/web/", &["gateway", "pipeline", "cli", "sim", "admin", "console", "ledger", "mcp"]),
        ("src/sim/", &["gateway", "pipeline", "ledger", "config", "admin", "cli", "metrics"]),
    ];
    for (directory, modules) in forbidden {
        for path in files_below(directory, "rs") {
            for module in modules {
                let used = code(&path).contains(&format!("crate::{module}::"));
                assert!(!used, "{} names crate::{module}", relative(&path));
            }
        }
    }
}

#[test]
fn nothing_is_left_for_later() {
    let marks = ["TODO", "FIXME", "XXX", "todo!(", "unimplemented!(", "#[ignore]"];
    for directory in ["src", "tests", "benches"] {
        for path in files_below(directory, "rs").iter().filter(|path| !path.ends_with("tidy.rs")) {
            let text = fs::read_to_string(path).expect("text");
            for mark in marks {
                assert!(!text.contains(mark), "{} says {mark}", relative(path));
            }
        }
    }
}

#[test]
fn names_say_what_things_are() {
    for path in files_below("src", "rs") {
        let file = relative(&path);
        for vague in ["utils", "helpers", "common", "manager", "misc"] {
            assert!(!file.contains(vague), "{file} says nothing about what is in it");
        }
    }
}

/// Paths in the map exist: a map that names what is not there is worse than none.
#[test]
fn the_map_names_what_is_there() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    let mut checked = 0;
    for name in map.split('`').skip(1).step_by(2) {
        if ["src/", "tests/", "docs/", "benches/"].iter().any(|prefix| name.starts_with(prefix)) {
            assert!(root().join(name).exists(), "ARCHITECTURE.md names {name}, which is not there");
            checked += 1;
        }
    }
    assert!(checked >= 20, "expected at least 20 paths in the map, found {checked}");
}

/// Links and pictures of the documents lead to files that there are.
#[test]
fn documents_link_to_what_is_there() {
    let mut checked = 0;
    for path in files_below("docs", "md").iter().chain([&root().join("README.md")]) {
        let text = fs::read_to_string(path).expect("text");
        let ends = |rest: &str, end| rest.split(end).next().unwrap_or_default().to_owned();
        let links = text.split("](").skip(1).map(|rest| ends(rest, ')'));
        let pictures = text.split("<img src=\"").skip(1).map(|rest| ends(rest, '"'));
        for link in links.chain(pictures) {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") || file.contains(' ') {
                continue;
            }
            let target = path.parent().expect("a directory").join(file);
            assert!(target.exists(), "{} links to {link}, which is not there", relative(path));
            checked += 1;
        }
    }
    assert!(checked >= 30, "expected at least 30 links, found {checked}");
}
