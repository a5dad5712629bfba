//! Imports point one way inside each crate: no two of its modules need each other.
//!
//! Between crates rustc sees to that. Here every path of every file counts, of tests too: `crate::x`,
//! `super::x`, and each branch of `use crate::{x, y}`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Imports that close a cycle and are still there: crate, from, to. The list may only become shorter.
const KNOWN: &[(&str, &str, &str)] = &[
    // What a simulated task makes, in the words of its protocol.
    ("crates/simulator", "tasks", "ark"),
    ("crates/simulator", "tasks", "dashscope"),
    ("crates/simulator", "tasks", "xai"),
];

/// Places shown of each import of a cycle.
const PLACES_SHOWN: usize = 5;

/// From which module to which, and where that stands.
type Imports = BTreeMap<(String, String), Vec<String>>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn no_modules_need_each_other() {
    let mut faults = Vec::new();
    for name in crates() {
        let mut imports = imports_of(&root().join(&name).join("src"));
        for (_, from, to) in KNOWN.iter().filter(|(known, ..)| *known == name) {
            if imports.remove(&((*from).to_owned(), (*to).to_owned())).is_none() {
                faults.push(format!("{name}: {from} does not name {to} any more: take it off"));
            }
        }
        for cycle in cycles(&imports) {
            faults.push(format!("{name}: {} need each other", cycle.join(", ")));
            for ((from, to), places) in &imports {
                if cycle.contains(from) && cycle.contains(to) {
                    let shown: Vec<_> = places.iter().take(PLACES_SHOWN).cloned().collect();
                    faults.push(format!("  {from} names {to}: {}", shown.join(", ")));
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The directories of the crates, below the root; that of the gateway itself is `.`.
fn crates() -> Vec<String> {
    let members = fs::read_dir(root().join("crates")).expect("the crates");
    let members = members.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> =
        members.map(|name| format!("crates/{}", name.to_string_lossy())).collect();
    names.push(".".to_owned());
    names.sort();
    names
}

/// What the modules right below a crate's root name of each other.
fn imports_of(source: &Path) -> Imports {
    let mut files = Vec::new();
    collect(source, &mut files);
    let paths: Vec<Vec<String>> = files.iter().map(|file| module_path(source, file)).collect();
    let modules: BTreeSet<String> = paths.iter().filter_map(|path| path.first().cloned()).collect();
    let mut imports = Imports::new();
    for (file, path) in files.iter().zip(&paths) {
        let Some(from) = path.first() else { continue };
        let text = without_comments_and_strings(&fs::read_to_string(file).expect("text"));
        let shown = file.strip_prefix(root()).expect("below the root").display();
        for (to, line) in named(&text, path.len()) {
            if to != *from && modules.contains(&to) {
                let places = imports.entry((from.clone(), to)).or_default();
                places.push(format!("{shown}:{line}"));
            }
        }
    }
    imports
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
}

/// The module that a file is: `a/b.rs` and `a/b/mod.rs` are `[a, b]`, and the crate's root is `[]`.
fn module_path(source: &Path, file: &Path) -> Vec<String> {
    let relative = file.strip_prefix(source).expect("below the source").with_extension("");
    let mut path: Vec<_> =
        relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| last == "mod") || ["lib", "main"].contains(&path[0].as_str())
    {
        path.pop();
    }
    path
}

/// The text with blanks in the place of comments and of what stands in quotes: lines stay where they are.
fn without_comments_and_strings(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut blank = |range: std::ops::Range<usize>| {
        out[range].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    };
    let mut at = 0;
    while at < bytes.len() {
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
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        };
        blank(at..at + length);
        at += length;
    }
    String::from_utf8(out).expect("whole characters are blanked")
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

/// The modules right below the root that a text names, with the lines, in a module `depth` below it.
fn named(text: &str, depth: usize) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    // The depths of braces at which modules within the file begin.
    let (mut braces, mut inner) = (0_usize, Vec::new());
    let mut is_module = false;
    let (mut at, mut line) = (0, 1);
    while at < text.len() {
        let rest = &text[at..];
        let word: &str =
            rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        if word.is_empty() {
            let character = rest.chars().next().expect("there is a rest");
            match character {
                '\n' => line += 1,
                '{' => {
                    braces += 1;
                    if std::mem::take(&mut is_module) {
                        inner.push(braces);
                    }
                }
                '}' => {
                    inner.pop_if(|begun| *begun == braces);
                    braces = braces.saturating_sub(1);
                }
                ';' => is_module = false,
                _ => {}
            }
            at += character.len_utf8();
            continue;
        }
        is_module |= word == "mod";
        if word == "crate" || word == "super" {
            let supers = rest.split("::").take_while(|part| part.trim() == "super").count();
            let reaches_root = word == "crate" || supers == depth + inner.len();
            let tree = match word {
                "crate" => rest[word.len()..].trim_start().strip_prefix("::"),
                _ => rest.splitn(supers + 1, "::").nth(supers),
            };
            let names = tree.filter(|_| reaches_root).map(first_names).unwrap_or_default();
            found.extend(names.into_iter().map(|name| (name, line)));
            // The next `super` of the same path is no path of its own.
            let length = word.len().max((supers * "super::".len()).saturating_sub(2));
            line += rest[..length].matches('\n').count();
            at += length;
            continue;
        }
        at += word.len();
    }
    found
}

/// The first names of `a::b`, or of each branch of `{a::b, c::{d, e}}`.
fn first_names(tree: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(group) = tree.trim_start().strip_prefix('{') else { return vec![name(tree)] };
    let (mut names, mut depth, mut begin) = (Vec::new(), 1, 0);
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || depth == 1 && character == ',' {
            names.push(name(&group[begin..at]));
            begin = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// The sets of modules that all reach each other.
fn cycles(imports: &Imports) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = imports
        .keys()
        .map(|(from, _)| {
            let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
            while let Some(module) = left.pop() {
                let next = imports.keys().filter(|(from, _)| from == module).map(|(_, to)| to);
                left.extend(next.filter(|to| seen.insert(*to)));
            }
            (from, seen)
        })
        .collect();
    let reaches = |from, to| reached.get(from).is_some_and(|seen| seen.contains(to));
    let mut cycles: Vec<Vec<String>> = Vec::new();
    for module in reached.keys().filter(|module| reaches(**module, **module)) {
        let others =
            reached.keys().filter(|other| reaches(module, **other) && reaches(**other, *module));
        let cycle: Vec<String> = others.map(|other| (**other).clone()).collect();
        if !cycles.contains(&cycle) {
            cycles.push(cycle);
        }
    }
    cycles
}

#[test]
fn paths_are_found_wherever_they_stand() {
    let text = "use crate::{a::{x, y}, b}; // crate::no\n\
                fn f() { let s = \"crate::no\"; super::super::c::g(); super::no::g() }\n\
                mod tests { use super::super::{no}; use super::super::super::d; use super::no; }\n\
                use\n    crate::e::E; const Q: char = '\"'; const R: &str = r#\"crate::no\"#;\n";
    let names: Vec<_> = named(&without_comments_and_strings(text), 2);
    let expected = [("a", 1), ("b", 1), ("c", 2), ("d", 3), ("e", 5)];
    assert_eq!(names, expected.map(|(name, line)| (name.to_owned(), line)));
}

#[test]
fn modules_that_need_each_other_are_found() {
    let imports = |pairs: &[(&str, &str)]| -> Imports {
        pairs.iter().map(|(from, to)| (((*from).into(), (*to).into()), Vec::new())).collect()
    };
    assert!(cycles(&imports(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    let found = cycles(&imports(&[("a", "b"), ("b", "c"), ("c", "b"), ("d", "e"), ("e", "d")]));
    assert_eq!(found, [vec!["b", "c"], vec!["d", "e"]]);
}
