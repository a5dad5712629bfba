//! An operation is a row in the table of operations, a codec and a line in the registry: few other files name it.

use std::collections::BTreeMap;
use std::fs;

use tollgate_protocols::{BodyKind, Operation};

use crate::config::renews_expectations;
use crate::sources::{blank_comments_and_strings, blank_unit_tests, product, relative, root};

/// Files that an operation may touch: its row, its codecs and what else names it, `registry.rs` and `lib.rs`.
const FILES_MAX: usize = 6;
/// Files that every operation touches without naming it: the registry, and `lib.rs` with the module.
const UNNAMED_FILES: usize = 2;

/// Operations with behaviour that no other has, and the files that name them today. The numbers may only become
/// lower: what an operation has in common with others belongs into its row.
const MORE: &[(Operation, usize)] = &[
    (Operation::Chat, 15),
    (Operation::Messages, 7),
    (Operation::Responses, 11),
    (Operation::GenerateContent, 5),
    (Operation::CountContentTokens, 5),
    (Operation::InputTokens, 5),
    (Operation::Video, 6),
    (Operation::Speech, 5),
];

#[test]
fn an_operation_touches_few_files() {
    let known: BTreeMap<Operation, usize> = MORE.iter().copied().collect();
    let named = files_by_operation();
    let mut faults = Vec::new();
    for operation in Operation::EVERY {
        let files = named.get(operation).map(Vec::as_slice).unwrap_or_default();
        assert!(!files.is_empty(), "no file names {operation:?}: are the sources read?");
        let most = known.get(operation).copied().unwrap_or(FILES_MAX - UNNAMED_FILES);
        if files.len() > most {
            faults.push(format!("{operation:?}: {} files, {most} may be: {files:?}", files.len()));
        } else if known.contains_key(operation) && files.len() < most {
            faults.push(format!("{operation:?}: {} files, not {most}: lower MORE", files.len()));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The files of the product that name each operation: as `Operation::Rerank`, in a list that is imported from
/// `Operation`, or in the table. Simulated providers are no product of an operator's.
fn files_by_operation() -> BTreeMap<Operation, Vec<String>> {
    let mut files: BTreeMap<Operation, Vec<String>> = BTreeMap::new();
    for path in product() {
        let shown = relative(&path);
        let is_test = ["/tests", "_tests.rs", "/shipped_", "/sample.rs"]
            .iter()
            .any(|part| shown.contains(part));
        if is_test || shown.contains("/benches/") || shown.starts_with("crates/simulator/") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("text");
        let code = blank_comments_and_strings(&blank_unit_tests(&text));
        let is_table = shown.ends_with("operation/table.rs");
        for operation in Operation::EVERY {
            if is_table || names(&code, &format!("{operation:?}")) {
                files.entry(*operation).or_default().push(shown.clone());
            }
        }
    }
    files
}

/// True if the code names the variant as one of `Operation`.
fn names(code: &str, variant: &str) -> bool {
    code.match_indices("Operation::").any(|(at, path)| {
        let rest = &code[at + path.len()..];
        match rest.strip_prefix('{') {
            Some(list) => {
                let list = list.split('}').next().unwrap_or_default();
                list.split(',').any(|name| name.trim() == variant)
            }
            None => rest.strip_prefix(variant).is_some_and(|rest| {
                !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_')
            }),
        }
    })
}

#[test]
fn variants_are_found_in_paths_and_imports() {
    let code = "use Operation::{Chat, Rerank}; match it { Operation::InputTokens => 1 }";
    for variant in ["Chat", "Rerank", "InputTokens"] {
        assert!(names(code, variant), "{variant}");
    }
    assert!(!names(code, "Input") && !names(code, "Messages"));
}

/// The reference's table of operations, between the comments that mark it.
#[test]
fn the_table_of_the_reference_is_made_of_the_rows() {
    const MARKS: [&str; 2] = ["<!-- operations -->\n", "<!-- /operations -->"];
    let path = root().join("docs/configuration.md");
    let page = fs::read_to_string(&path).expect("the reference");
    let (before, rest) = page.split_once(MARKS[0]).expect("the table begins");
    let (committed, after) = rest.split_once(MARKS[1]).expect("the table ends");
    let current = reference_table();
    if renews_expectations() {
        let page = [before, MARKS[0], &current, MARKS[1], after].concat();
        return fs::write(&path, page).expect("the reference is written");
    }
    assert_eq!(committed, current, "run this test with UPDATE_EXPECTED=1 to renew {path:?}");
}

fn reference_table() -> String {
    let mut table =
        "| Operation | Default path | | Prices | Further prices | Limits |\n".to_owned();
    table.push_str("|---|---|---|---|---|---|\n");
    let quoted = |names: Vec<&str>, between: &str| {
        names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(between)
    };
    for operation in Operation::EVERY {
        let info = operation.info();
        let name = match info.parent {
            None => format!("`{operation}`"),
            Some(parent) => format!("*with* `{parent}`"),
        };
        let form = if info.body == BodyKind::Form { "; a multipart form" } else { "" };
        let alternatives: Vec<String> = info
            .billed_by
            .iter()
            .map(|units| quoted(units.iter().map(|unit| unit.info().price).collect(), " and "))
            .collect();
        let prices = match (info.is_billed, info.parent) {
            (false, _) => "free".to_owned(),
            (true, Some(parent)) => format!("those of `{parent}`"),
            (true, None) => alternatives.join(", or "),
        };
        let beside =
            quoted(info.billed_beside.iter().map(|unit| unit.info().price).collect(), ", ");
        let limits =
            if info.parent.is_none() { quoted(info.limits.to_vec(), ", ") } else { String::new() };
        let row = [
            name,
            format!("`{}{}`", info.path, info.path_suffix),
            format!("{}{form}", info.summary),
            prices,
            beside,
            limits,
        ];
        table.push_str(
            &format!("| {} |\n", row.join(" | ")).replace("|  |", "| |").replace("|  |", "| |"),
        );
    }
    table
}
