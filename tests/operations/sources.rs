//! Source files as the tests of style read them: paths, and text without comments, strings or unit tests.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A path below the root, as messages print it.
pub(crate) fn relative(path: &Path) -> String {
    path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned()
}

/// Files with an extension below a directory of the repository, sorted. Build output is skipped.
pub(crate) fn files_below(directory: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![root().join(directory)];
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(&path).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                pending.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no .{extension} files below {directory}");
    found
}

/// All Rust files of the product: the root package and the crates, with their unit tests.
pub(crate) fn product() -> Vec<PathBuf> {
    let files = [files_below("src", "rs"), files_below("crates", "rs")].concat();
    assert!(files.len() > 300, "only {} source files", files.len());
    files
}

/// The text with blanks in place of comments and the contents of strings. Offsets and lines stay the same.
pub(crate) fn blank_comments_and_strings(text: &str) -> String {
    let mut out = text.as_bytes().to_vec();
    for range in comments_and_strings(text) {
        out[range].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    }
    String::from_utf8(out).expect("whole characters are blanked")
}

/// Byte ranges of comments, strings and characters in a Rust file.
fn comments_and_strings(text: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < text.len() {
        // Most characters begin neither.
        if !matches!(text.as_bytes()[at], b'/' | b'r' | b'"' | b'\'') {
            at += 1;
            continue;
        }
        let rest = &text[at..];
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(hashes) = raw_string(&text[..at], rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = hashes + 2;
            rest[body..].find(&end).map_or(rest.len(), |found| body + found + end.len())
        } else if rest.starts_with('"') {
            string_length(rest)
        } else if rest.starts_with("'\"'") || rest.starts_with("'{'") || rest.starts_with("'}'") {
            3
        } else if let Some(escaped) = rest.strip_prefix("'\\") {
            escaped.char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(2, |(end, _)| end + 3)
        } else {
            at += 1;
            continue;
        };
        ranges.push(at..at + length);
        at += length;
    }
    ranges
}

/// The number of `#` of a raw string that begins here.
fn raw_string(before: &str, rest: &str) -> Option<usize> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let before = before.strip_suffix('b').unwrap_or(before);
    let rest = rest.strip_prefix('r').filter(|_| !before.ends_with(is_name))?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    rest[hashes..].starts_with('"').then_some(hashes)
}

fn string_length(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The text with blanks in place of every item under `#[cfg(test)]`, wherever it stands in the file.
pub(crate) fn blank_unit_tests(text: &str) -> String {
    let code = blank_comments_and_strings(text);
    let mut out = text.as_bytes().to_vec();
    for (begin, _) in code.match_indices("#[cfg(test)]") {
        let end = begin + item_length(&code[begin..]);
        out[begin..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    }
    String::from_utf8(out).expect("whole characters are blanked")
}

/// Bytes of the item that begins here, with its attributes: up to its `;`, or to the brace that closes it.
fn item_length(code: &str) -> usize {
    let (mut braces, mut others) = (0_usize, 0_usize);
    for (at, character) in code.char_indices() {
        match character {
            '(' | '[' => others += 1,
            ')' | ']' => others = others.saturating_sub(1),
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                // `use a::{b};` goes on behind its brace.
                if braces == 0 && !code[at + 1..].trim_start().starts_with(';') {
                    return at + 1;
                }
            }
            // Fields and variants end at a comma.
            ';' | ',' if braces == 0 && others == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

#[test]
fn only_items_under_cfg_test_are_blanked() {
    let text = "#[cfg(test)]\nuse a::{b, c};\nfn product() {}\n\
                #[cfg(test)]\nmod tests { fn f() { \"}\"; } }\nfn more() {}\n\
                struct S {\n    #[cfg(test)]\n    calls: [u8; 2],\n    kept: u8,\n}\n";
    let left: Vec<String> =
        blank_unit_tests(text).lines().map(|line| line.trim().to_owned()).collect();
    let left: Vec<&str> = left.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
    assert_eq!(left, ["fn product() {}", "fn more() {}", "struct S {", "kept: u8,", "}"]);
}

#[test]
fn comments_and_strings_are_blanked() {
    let text = "a /* b */ \"c // d\" // e\nr#\"f\" g\"# h '\"' '\\'' i\n";
    let blanked = blank_comments_and_strings(text);
    assert_eq!(blanked.len(), text.len());
    assert_eq!(blanked.split_whitespace().collect::<String>(), "ahi");
}
