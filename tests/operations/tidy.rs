//! Style as a test: what ARCHITECTURE.md promises about the code is checked here.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sources::{blank_unit_tests, files_below, product, relative, root};

/// The code of a file without comments and without its unit tests.
fn code(path: &Path) -> String {
    let text = blank_unit_tests(&fs::read_to_string(path).expect("text"));
    let code_lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code_lines.collect::<Vec<_>>().join("\n")
}

/// Commands print others' text, which may steer a terminal, through one module.
#[test]
fn commands_print_through_one_module() {
    let mut looked_at = 0;
    for path in product() {
        let shown = path.display().to_string();
        if !shown.contains("crates/cli/") || shown.ends_with("cli/src/terminal.rs") {
            continue;
        }
        looked_at += 1;
        let code = code(&path);
        for way in ["println!(", " print!(", "stdout()", "stderr()"] {
            assert!(!code.contains(way), "{shown} prints with `{way}`: use `terminal`");
        }
    }
    assert!(looked_at > 40, "{looked_at} files of commands");
}

#[test]
fn only_one_place_names_each_heavy_dependency() {
    let sources: Vec<_> = product().iter().map(|path| (relative(path), code(path))).collect();
    for (name, allowed) in [
        ("sled::", &["crates/ledger/src/projection/store"][..]),
        ("prometheus::", &["crates/telemetry/src/metrics"]),
        ("pingora::", &["src/gateway/", "src/server/"]),
        ("pingora_proxy::", &["src/gateway/"]),
        ("client::legacy", &["crates/outbound/"]),
        ("opentelemetry", &["crates/traces/"]),
        ("axum::", &["crates/admin/", "crates/customer-console/", "crates/web-kit/"]),
        ("askama::", &["crates/admin/src/console/", "crates/customer-console/", "crates/web-kit/"]),
        ("argon2::", &["crates/web-kit/src/password.rs"]),
        (
            "StatusCode",
            &[
                "src/gateway/answer/respond.rs",
                "src/gateway/wire/head.rs",
                "crates/admin/",
                "crates/customer-console/",
                // It answers before there is a request to fail.
                "crates/mcp/src/endpoint.rs",
                "crates/mcp/src/envelope.rs",
                "crates/simulator/",
                "crates/web-kit/",
            ],
        ),
        ("rmcp::", &["crates/mcp/"]),
        ("tokio_postgres", &["crates/fleet/src/postgres"]),
        ("deadpool_postgres", &["crates/fleet/src/postgres"]),
    ] {
        for (file, code) in &sources {
            if allowed.iter().any(|prefix| file.starts_with(prefix)) {
                continue;
            }
            assert!(!code.contains(name), "{file} names {name}; only {allowed:?} may");
        }
    }
}

/// The workspace's lints forbid unsafe code, and one crate has lints of its own: the same, but for that.
#[test]
fn only_one_crate_may_have_unsafe_code() {
    let crates = fs::read_dir(root().join("crates")).expect("the crates");
    let crates = crates.map(|entry| entry.expect("an entry").path());
    for directory in crates.chain([root().to_owned()]) {
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("a manifest");
        let has_those_of_all = manifest.contains("[lints]\nworkspace = true\n");
        let may = directory.ends_with("crates/process-memory");
        assert_eq!(has_those_of_all, !may, "the lints of {}", directory.display());
    }
    let lints = |manifest: &str, start: &str| {
        let text = fs::read_to_string(root().join(manifest)).expect("a manifest");
        let rest = text.split(start).skip(1).flat_map(|rest| rest.lines().skip(1));
        let lines =
            rest.take_while(|line| !line.starts_with("# ")).filter(|line| line.contains(" = \""));
        lines.filter(|line| !line.starts_with("unsafe_code")).map(str::to_owned).collect::<Vec<_>>()
    };
    let own = lints("crates/process-memory/Cargo.toml", "[lints.rust]");
    let of_all = lints("Cargo.toml", "[workspace.lints.rust]");
    assert!(of_all.len() > 5, "{of_all:?}");
    for lint in of_all {
        assert!(own.contains(&lint), "crates/process-memory has another lint than {lint}");
    }
}

/// `dist` and `bench` inherit the settings of single crates from `release`, where cold ones are optimized less.
#[test]
fn what_is_installed_and_measured_is_fully_optimized() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let levels = |profile: &str| -> Vec<String> {
        let start = format!("[profile.{profile}.package]\n");
        let lines = manifest.split(&start).nth(1).expect("the profile's packages").lines();
        lines.take_while(|line| line.starts_with("tollgate-")).map(str::to_owned).collect()
    };
    let cold = levels("release");
    assert!(cold.len() > 5, "{cold:?}");
    let full: Vec<_> = cold.iter().map(|line| line.replace("level = 1", "level = 3")).collect();
    assert_eq!(levels("dist"), full, "what is installed");
    assert_eq!(levels("bench"), full, "what is measured");
}

#[test]
fn imports_point_one_way() {
    // What the proxy does not need is handed to it by `src/server/`. Between crates rustc sees to it.
    for path in files_below("src/gateway/", "rs") {
        let code = code(&path);
        for module in ["admin", "cli", "console", "mcp", "server", "sim"] {
            let used = code.contains(&format!("crate::{module}::"));
            assert!(!used, "{} names crate::{module}", relative(&path));
        }
    }
}

/// The map's dependencies of each crate are those of its manifest.
#[test]
fn the_map_says_what_crates_name() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let directory = entry.expect("an entry").path();
        let start = format!("| `{}/` |", relative(&directory));
        let row = map.lines().find(|line| line.starts_with(&start));
        let row = row.unwrap_or_else(|| panic!("the map has no row {start}"));
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("a manifest");
        let named = manifest.lines().filter_map(|line| {
            line.strip_prefix("tollgate-")?.split(['.', ' ']).next().filter(|name| !name.is_empty())
        });
        let named: Vec<_> = named.collect();
        let named = if named.is_empty() { "–".to_owned() } else { named.join(", ") };
        assert!(row.ends_with(&format!("| {named} |")), "{start} may name {named}: {row}");
    }
}

#[test]
fn nothing_is_left_for_later() {
    let marks = ["TODO", "FIXME", "XXX", "todo!(", "unimplemented!(", "#[ignore]"];
    for directory in ["src", "crates", "tests", "benches"] {
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
    for path in product() {
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
        if ["src/", "crates/", "tests/", "docs/", "benches/"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
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

/// The index of decisions names every page, with its title and a status.
#[test]
fn the_index_of_decisions_is_complete() {
    let index = fs::read_to_string(root().join("docs/adr/README.md")).expect("the index");
    for path in files_below("docs/adr", "md").iter().filter(|path| !path.ends_with("README.md")) {
        let text = fs::read_to_string(path).expect("text");
        let name = path.file_name().expect("a name").to_string_lossy();
        let title = text.lines().next().and_then(|line| line.strip_prefix("# "));
        let (number, title) = title.and_then(|title| title.split_once(' ')).expect("a title");
        let row = format!("| [{number}]({name}) | {title} | ");
        let row = index.lines().find_map(|line| line.strip_prefix(&row));
        assert!(
            row.is_some_and(|status| status.len() > 2),
            "the index lacks | [{number}]({name}) | {title} |"
        );
    }
}

/// Each binary of tests links everything once more: topics are modules of one of them.
#[test]
fn integration_tests_are_few_binaries() {
    const BINARIES_MAX: usize = 6;
    let is_binary = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").exists()
    };
    let entries = fs::read_dir(root().join("tests")).expect("a directory");
    let binaries = entries.map(|entry| entry.expect("an entry").path()).filter(is_binary).count();
    assert!(binaries <= BINARIES_MAX, "{binaries} binaries of integration tests");
}

/// Slow tests, and those that need root or a browser, run only by name.
#[test]
fn every_proof_is_ignored_by_default() {
    for path in files_below("tests/proofs", "rs") {
        let text = fs::read_to_string(&path).expect("text");
        let count = |mark: &str| text.lines().filter(|line| line.starts_with(mark)).count();
        let tests = count("#[test]") + count("#[tokio::test");
        assert_eq!(tests, count("#[ignore = "), "{}", relative(&path));
    }
}

/// Examples in documentation are run, except by libraries that say that they have none: to look for them takes
/// seconds for each library.
#[test]
fn libraries_without_doc_tests_have_no_examples() {
    let crates = fs::read_dir(root().join("crates")).expect("a directory");
    let crates =
        crates.map(|entry| format!("crates/{}", entry.expect("an entry").file_name().display()));
    for directory in crates.chain([".".to_owned()]) {
        let manifest = root().join(&directory).join("Cargo.toml");
        if !fs::read_to_string(manifest).expect("a manifest").contains("doctest = false") {
            continue;
        }
        for path in files_below(&format!("{directory}/src"), "rs") {
            let text = fs::read_to_string(&path).expect("text");
            let docs = text.lines().map(str::trim_start);
            let docs =
                docs.filter_map(|line| line.strip_prefix("///").or(line.strip_prefix("//!")));
            let fences = docs.filter_map(|line| line.trim_start().strip_prefix("```"));
            for language in fences.step_by(2) {
                assert_eq!(language, "text", "{}: an example that is not run", relative(&path));
            }
        }
    }
}

/// Settings of linking in decisions are those of `Cargo.toml`: a row of a table that begins with a profile
/// holds for that profile, any other mention for one of them.
#[test]
fn decisions_quote_the_build_profiles() {
    const SETTINGS: [&str; 2] = ["lto", "codegen-units"];
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    let sections = manifest.split("\n[").filter_map(|section| section.strip_prefix("profile."));
    let profiles: Vec<_> = sections.filter_map(|section| section.split_once("]\n")).collect();
    let mut quotes = 0;
    for path in files_below("docs/adr", "md") {
        let text = fs::read_to_string(&path).expect("text");
        for line in text.lines() {
            let row = line.strip_prefix("| `").and_then(|row| row.split('`').next());
            let row = row.filter(|name| profiles.iter().any(|(profile, _)| profile == name));
            for setting in line.split('`').skip(1).step_by(2) {
                let is_setting =
                    setting.split_once(" = ").is_some_and(|(key, _)| SETTINGS.contains(&key));
                let mut matching =
                    profiles.iter().filter(|(name, _)| row.is_none_or(|row| row == *name));
                let is_there =
                    matching.any(|(_, settings)| settings.lines().any(|line| line == setting));
                assert!(
                    !is_setting || is_there,
                    "{}: Cargo.toml has no {setting}: {line}",
                    relative(&path)
                );
                quotes += usize::from(is_setting);
            }
        }
    }
    assert!(quotes >= 4, "decisions quote {quotes} settings of profiles");
}
