//! An operation is a row in the table of operations, a codec and a line in the registry: few other files name it.

use std::collections::BTreeMap;
use std::fs;

use tollgate_protocols::Operation;

use crate::sources::{blank_comments_and_strings, blank_unit_tests, product, relative};

/// Files that an operation may touch: its row, its codecs and what else names it, `registry.rs` and `lib.rs`.
const FILES_MAX: usize = 6;
/// Files that every operation touches without naming it: the registry, and `lib.rs` with the module.
const UNNAMED_FILES: usize = 2;

/// Operations with behaviour that no other has, and the files that name them today. The numbers may only become
/// lower: what an operation has in common with others belongs into its row.
const MORE: &[(Operation, usize)] = &[
    (Operation::Chat, 18),
    (Operation::Messages, 11),
    (Operation::CountTokens, 5),
    (Operation::Responses, 14),
    (Operation::GenerateContent, 8),
    (Operation::CountContentTokens, 7),
    (Operation::Compact, 6),
    (Operation::InputTokens, 6),
    (Operation::Embeddings, 7),
    (Operation::ImageGeneration, 8),
    (Operation::ImageEdit, 6),
    (Operation::Video, 14),
    (Operation::Speech, 9),
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
        let is_test = ["/tests", "_tests.rs", "/shipped_"].iter().any(|part| shown.contains(part));
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
