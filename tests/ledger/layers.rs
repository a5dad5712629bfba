//! The ledger's folders are layers: each imports those below it only. Computed from every path in
//! every file below `crates/ledger/src`, apart from the modules that are compiled for tests alone.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers from the bottom up. `archive` and `journal` are one layer.
const LAYERS: [&[&str]; 14] = [
    &["records"],
    &["rules"],
    &["files"],
    &["archive", "journal"],
    &["projection"],
    &["maintenance"],
    &["ports"],
    &["memory"],
    &["reading"],
    &["calls"],
    &["tasks"],
    &["customers"],
    &["operators"],
    &["opening"],
];

/// Names of the root that belong to the journal.
const OF_THE_JOURNAL: [&str; 2] = ["Commit", "OnCommit"];

fn ledger() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/ledger/src")
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(&path).expect("a directory") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => left.push(path),
                false if path.extension().is_some_and(|extension| extension == "rs") => {
                    found.push(path);
                }
                false => {}
            }
        }
    }
    found.sort();
    found
}

/// The code of a file without comments and without the modules of its unit tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("text");
    let (mut kept, mut in_tests, mut is_marked) = (String::new(), false, false);
    for line in text.lines() {
        if in_tests {
            in_tests = line != "}";
        } else if is_marked && line.starts_with("mod ") && line.ends_with('{') {
            in_tests = true;
        } else if !line.trim_start().starts_with("//") {
            kept.push_str(line);
            kept.push('\n');
        }
        is_marked = line == "#[cfg(test)]";
    }
    kept
}

/// The layer that a module directly below `crates/ledger/src` belongs to.
fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

/// Layers of the names that the root re-exports.
fn handed_on() -> HashMap<String, usize> {
    let root = code(&ledger().join("lib.rs"));
    let journal = layer("journal").expect("a layer");
    let mut names: HashMap<_, _> =
        OF_THE_JOURNAL.iter().map(|name| ((*name).to_owned(), journal)).collect();
    for statement in root.split(';').filter_map(|text| text.split("use self::").nth(1)) {
        let module = statement.split("::").next().unwrap_or_default();
        let Some(layer) = layer(module) else { continue };
        let last = statement.rsplit("::").next().unwrap_or_default();
        for name in last.split([',', '{', '}']).map(str::trim).filter(|name| !name.is_empty()) {
            names.insert(name.to_owned(), layer);
        }
    }
    names
}

/// The first names of the paths behind `crate::`, in groups as well.
fn named(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let group = match rest.strip_prefix('{') {
            Some(group) => group.split(';').next().unwrap_or_default().to_owned(),
            None => rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect(),
        };
        // A group ends where a statement does; what stands deeper in it has its own first name.
        let mut depth = 0_i32;
        let mut name = String::new();
        for c in group.chars().chain([',']) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth <= 0 => {
                    let first = name.trim().split("::").next().unwrap_or_default();
                    names.push(first.trim_matches('}').to_owned());
                    name.clear();
                }
                _ if depth <= 0 => name.push(c),
                _ => {}
            }
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn each_layer_imports_downwards_only() {
    let (root, handed_on) = (ledger(), handed_on());
    let (mut checked, mut upward) = (0, Vec::new());
    for path in files_below(&root) {
        let inner = path.strip_prefix(&root).expect("below the ledger");
        let first = inner.iter().next().and_then(|first| first.to_str()).expect("a name");
        let Some(own) = layer(first.trim_end_matches(".rs")) else { continue };
        let file = format!("crates/ledger/src/{}", inner.display());
        let code = code(&path);
        // As many steps up as there are modules lead to the root, where nothing is checked. Modules
        // that are one file name their neighbours so, which are of the same layer.
        let steps = inner.iter().count() - usize::from(inner.ends_with("mod.rs"));
        if inner.iter().count() > 1 && code.contains(&"super::".repeat(steps)) {
            upward.push(format!("{file} steps up to the root"));
        }
        for name in named(&code) {
            checked += 1;
            // What the root has itself is above all layers.
            let its = layer(&name).or_else(|| handed_on.get(&name).copied());
            if its.is_none_or(|its| its > own) {
                upward.push(format!("{file} names {name}"));
            }
        }
    }
    assert!(checked > 200, "expected more than 200 imports, found {checked}");
    assert!(upward.is_empty(), "{} imports run upwards:\n{}", upward.len(), upward.join("\n"));
}

#[test]
fn every_folder_of_the_ledger_has_a_layer() {
    for entry in fs::read_dir(ledger()).expect("a directory") {
        let name = entry.expect("an entry").file_name().into_string().expect("text");
        let module = name.trim_end_matches(".rs");
        assert!(module == "lib" || layer(module).is_some(), "{name} is in no layer");
    }
}
