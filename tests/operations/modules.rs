//! Modules import in one direction: at no depth of a crate do two siblings need each other.
//!
//! Each directory of modules is looked at alone: every child stands for all files below it, and an arrow
//! goes from one child to another where a file of the first names something of the second. Paths in `use`
//! lines and in code count, and a re-export counts as the module behind it. Unit tests may use what stands
//! above them. Between crates rustc refuses cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::sources::{blank_comments_and_strings, blank_unit_tests, files_below, relative, root};

/// Directories with a cycle today, and how many of their modules are in one. The list may only become
/// shorter, and its numbers lower.
const KNOWN: &[(&str, usize)] = &[];

/// Places shown of each arrow of a cycle.
const PLACES_SHOWN: usize = 5;

/// A module below the root of a crate: `[a, b]` is `crate::a::b`.
type Module = Vec<String>;
/// Arrows between the modules of one directory, with the places that draw them.
type Arrows = BTreeMap<(String, String), Vec<String>>;

#[test]
fn no_siblings_need_each_other() {
    let mut faults = Vec::new();
    let mut listed: BTreeMap<&str, usize> = KNOWN.iter().copied().collect();
    for source in source_directories() {
        for (directory, arrows) in arrows_of(&source) {
            let cycles = cycles(&arrows);
            let members = cycles.iter().map(Vec::len).sum::<usize>();
            let shown = [vec![source.clone()], directory].concat().join("/");
            let listed = listed.remove(shown.as_str()).unwrap_or_default();
            if members > listed {
                faults.push(format!("{shown}: {members} modules are in cycles, {listed} were"));
                faults.extend(cycles.iter().flat_map(|cycle| picture(cycle, &arrows)));
            } else if members < listed {
                faults.push(format!(
                    "{shown}: {members} instead of {listed} modules are in cycles: lower KNOWN"
                ));
            }
        }
    }
    faults.extend(listed.keys().map(|gone| format!("{gone} has no cycle: take it off KNOWN")));
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The `src` directories of all crates.
fn source_directories() -> Vec<String> {
    let crates = fs::read_dir(root().join("crates")).expect("the crates");
    let crates = crates.map(|entry| relative(&entry.expect("an entry").path()) + "/src");
    let mut directories: Vec<_> = crates.chain(["src".to_owned()]).collect();
    directories.sort();
    directories
}

/// The arrows of a cycle as lines, those with the fewest places first: these are the ones to cut.
fn picture(cycle: &[String], arrows: &Arrows) -> Vec<String> {
    let mut inside: Vec<_> = arrows
        .iter()
        .filter(|((from, to), _)| cycle.contains(from) && cycle.contains(to))
        .collect();
    inside.sort_by_key(|(_, places)| places.len());
    let line = |((from, to), places): &(&(String, String), &Vec<String>)| {
        let shown: Vec<_> = places.iter().take(PLACES_SHOWN).cloned().collect();
        format!("    {from} → {to} ({}): {}", places.len(), shown.join(", "))
    };
    let head = format!("  {} need each other:", cycle.join(", "));
    std::iter::once(head).chain(inside.iter().map(line)).collect()
}

/// The arrows of each directory of modules of a crate.
fn arrows_of(source: &str) -> BTreeMap<Module, Arrows> {
    let mut tree = Tree::default();
    let mut paths = Vec::new();
    for file in files_below(source, "rs") {
        let module = module_path(file.strip_prefix(root().join(source)).expect("below the source"));
        let text = fs::read_to_string(&file).expect("text");
        let code = blank_comments_and_strings(&blank_unit_tests(&text));
        let shown = relative(&file);
        let found = tree.read(&module, &code);
        paths.extend(found.into_iter().map(|path| (format!("{shown}:{}", path.line), path)));
    }
    paths.retain(|(_, path)| tree.is_product(&path.module));
    let mut arrows: BTreeMap<Module, Arrows> = BTreeMap::new();
    for (place, path) in paths {
        let Some(target) = tree.resolve(&path.module, &path.names) else { continue };
        let shared = path.module.iter().zip(&target).take_while(|(a, b)| a == b).count();
        // A parent may name what is below it, and a child what its parent defines.
        let (Some(from), Some(to)) = (path.module.get(shared), target.get(shared)) else {
            continue;
        };
        let places = arrows.entry(target[..shared].to_vec()).or_default();
        let places = places.entry((from.clone(), to.clone())).or_default();
        if !places.contains(&place) {
            places.push(place);
        }
    }
    arrows
}

/// The module of a file: `a/b.rs` and `a/b/mod.rs` are `[a, b]`, and the crate's root is `[]`.
fn module_path(file: &Path) -> Module {
    let mut path: Module =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| last == "mod") || path == ["lib"] || path == ["main"] {
        path.pop();
    }
    path
}

/// A path as it is written: where, and its names from `crate`, `super`, `self` or a first name on.
struct Written {
    line: usize,
    module: Module,
    names: Vec<String>,
}

/// The modules of a crate, what they define, and what they import under which name.
#[derive(Default)]
struct Tree {
    modules: BTreeSet<Module>,
    declared: BTreeSet<Module>,
    defined: BTreeSet<(Module, String)>,
    imported: BTreeMap<(Module, String), Vec<String>>,
    globs: BTreeMap<Module, Vec<Vec<String>>>,
}

impl Tree {
    /// Takes in the file of a module, and returns the paths that are written in it.
    fn read(&mut self, file: &Module, code: &str) -> Vec<Written> {
        let mut module = file.clone();
        self.modules.insert(module.clone());
        let tokens = tokens(code);
        let word = |at: usize| tokens.get(at).map_or("", |(token, _)| *token);
        let mut written = Vec::new();
        // Depths of braces at which modules within the file begin.
        let (mut braces, mut inner) = (0_usize, Vec::new());
        let mut at = 0;
        while let Some((token, line)) = tokens.get(at).copied() {
            match token {
                "{" => braces += 1,
                "}" => {
                    if inner.pop_if(|begun| *begun == braces).is_some() {
                        module.pop();
                    }
                    braces = braces.saturating_sub(1);
                }
                "mod" => {
                    let child = [module.clone(), vec![word(at + 1).to_owned()]].concat();
                    self.declared.insert(child.clone());
                    if word(at + 2) == "{" {
                        module = child;
                        self.modules.insert(module.clone());
                        inner.push(braces + 1);
                    }
                    at += 1;
                }
                "struct" | "enum" | "trait" | "fn" | "type" | "const" | "static" | "union" => {
                    self.defined.insert((module.clone(), word(at + 1).to_owned()));
                }
                "use" => {
                    let length = tokens[at..].iter().take_while(|(token, _)| *token != ";").count();
                    let mut branches = Vec::new();
                    branch(&tokens[at + 1..at + length], &[], &mut branches);
                    for (names, line) in branches {
                        self.import(&module, &names);
                        written.push(Written { line, module: module.clone(), names });
                    }
                    at += length;
                    continue;
                }
                "crate" | "super" | "self" if word(at + 1) == "::" => {
                    let mut names = vec![token.to_owned()];
                    while word(at + 1) == "::" && is_name(word(at + 2)) {
                        names.push(word(at + 2).to_owned());
                        at += 2;
                    }
                    written.push(Written { line, module: module.clone(), names });
                }
                _ => {}
            }
            at += 1;
        }
        written
    }

    /// True if no file above declares this module, or one around it, under `#[cfg(test)]`.
    fn is_product(&self, module: &Module) -> bool {
        (1..=module.len()).all(|depth| self.declared.contains(&module[..depth]))
    }

    /// Notes the name that one branch of a `use` brings into a module. `a::b as c` ends with `as`, `c`.
    fn import(&mut self, module: &Module, names: &[String]) {
        let (path, name) = match names {
            [path @ .., word, alias] if word == "as" => (path, alias),
            [path @ .., star] if star == "*" => {
                return self.globs.entry(module.clone()).or_default().push(path.to_vec());
            }
            [.., last] => (names, last),
            [] => return,
        };
        self.imported.insert((module.clone(), name.clone()), path.to_vec());
    }

    /// The module that defines what a path names. `None` for another crate.
    fn resolve(&self, from: &Module, names: &[String]) -> Option<Module> {
        self.resolve_within(from, names, &mut BTreeSet::new())
    }

    fn resolve_within(
        &self,
        from: &Module,
        names: &[String],
        visited: &mut BTreeSet<(Module, String)>,
    ) -> Option<Module> {
        let mut module = from.clone();
        let mut names = names.iter().peekable();
        let mut is_first = true;
        while let Some(name) = names.next() {
            let child = [module.clone(), vec![name.clone()]].concat();
            let key = (module.clone(), name.clone());
            match name.as_str() {
                "crate" => module.clear(),
                "self" => {}
                "super" => drop(module.pop()),
                "as" | "*" => break,
                _ if self.modules.contains(&child) => module = child,
                _ if self.defined.contains(&key) => break,
                _ if !visited.insert(key.clone()) => return None,
                _ => {
                    let rest: Vec<String> = names.cloned().collect();
                    if let Some(path) = self
                        .imported
                        .get(&key)
                        .filter(|path| path.as_slice() != std::slice::from_ref(name))
                    {
                        let path = [path.clone(), rest].concat();
                        return self.resolve_within(&module, &path, visited);
                    }
                    // Another crate, unless a glob brings the name in. A name that nothing here
                    // defines, such as a macro's, is the module's own.
                    let through = self.through_globs(&module, name, &rest, visited);
                    return through.or_else(|| (!is_first).then_some(module));
                }
            }
            is_first = false;
        }
        Some(module)
    }

    fn through_globs(
        &self,
        module: &Module,
        name: &str,
        rest: &[String],
        visited: &mut BTreeSet<(Module, String)>,
    ) -> Option<Module> {
        self.globs.get(module)?.iter().find_map(|glob| {
            let target = self.resolve_within(module, glob, visited)?;
            let key = (target.clone(), name.to_owned());
            let child = [target.clone(), vec![name.to_owned()]].concat();
            let has = self.modules.contains(&child)
                || self.defined.contains(&key)
                || self.imported.contains_key(&key);
            let path = [vec![name.to_owned()], rest.to_vec()].concat();
            has.then(|| self.resolve_within(&target, &path, visited)).flatten()
        })
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::` and single other characters of blanked code, with their lines.
fn tokens(code: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    for (number, mut rest) in code.lines().enumerate() {
        loop {
            rest = rest.trim_start();
            let Some(first) = rest.chars().next() else { break };
            let length = if first.is_alphanumeric() || first == '_' {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            found.push((&rest[..length], number + 1));
            rest = &rest[length..];
        }
    }
    found
}

/// The paths of a `use`: one for each branch of its tree, with its line.
fn branch(tokens: &[(&str, usize)], before: &[String], found: &mut Vec<(Vec<String>, usize)>) {
    let mut path = before.to_vec();
    for (at, (token, line)) in tokens.iter().enumerate() {
        if *token == "{" {
            let (mut depth, mut begin) = (0_usize, at + 1);
            for (end, (token, _)) in tokens.iter().enumerate().skip(at) {
                match *token {
                    "{" => depth += 1,
                    "}" => depth -= 1,
                    _ => {}
                }
                if (depth == 1 && *token == ",") || depth == 0 {
                    branch(&tokens[begin..end], &path, found);
                    begin = end + 1;
                }
                if depth == 0 {
                    return;
                }
            }
        }
        if is_name(token) || *token == "*" {
            path.push((*token).to_owned());
        }
        if at + 1 == tokens.len() && path.len() > before.len() {
            found.push((path.clone(), *line));
        }
    }
}

/// The sets of modules that all reach each other.
fn cycles(arrows: &Arrows) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = arrows
        .keys()
        .map(|(from, _)| {
            let (mut seen, mut pending) = (BTreeSet::new(), vec![from]);
            while let Some(module) = pending.pop() {
                let next = arrows.keys().filter(|(from, _)| from == module).map(|(_, to)| to);
                pending.extend(next.filter(|to| seen.insert(*to)));
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

fn module(path: &str) -> Module {
    path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[test]
fn paths_are_found_wherever_they_stand() {
    let text = "use crate::{a::{x, y as z}, b}; // crate::no\n\
                fn f() { let s = \"crate::no\"; super::super::c::g(); super::near::g() }\n\
                mod tests { use super::super::{k}; use super::*; }\n\
                use\n    crate::e::E; const Q: char = '\"'; const R: &str = r#\"crate::no\"#;\n";
    let written = Tree::default().read(&module("m::n"), &blank_comments_and_strings(text));
    let found: Vec<_> = written
        .iter()
        .map(|path| (path.line, path.module.join("::"), path.names.join("::")))
        .collect();
    let expected = [
        (1, "m::n", "crate::a::x"),
        (1, "m::n", "crate::a::y::as::z"),
        (1, "m::n", "crate::b"),
        (2, "m::n", "super::super::c::g"),
        (2, "m::n", "super::near::g"),
        (3, "m::n::tests", "super::super::k"),
        (3, "m::n::tests", "super::*"),
        (5, "m::n", "crate::e::E"),
    ];
    assert_eq!(found, expected.map(|(line, from, to)| (line, from.to_owned(), to.to_owned())));
}

#[test]
fn re_exports_lead_to_the_module_behind_them() {
    let mut tree = Tree::default();
    for (path, code) in [
        ("", "pub use a::deep::Deep as Seen; pub use b::*; use other_crate as c; struct Own;"),
        ("a", "mod deep;"),
        ("a::deep", "pub struct Deep;"),
        ("b", "pub fn bee() {}"),
        ("d", "use crate::{Seen, bee};"),
    ] {
        drop(tree.read(&module(path), code));
    }
    let resolve = |path: &str| tree.resolve(&module("d"), &module(path)).map(|to| to.join("::"));
    for (path, target) in [
        ("crate::Seen", Some("a::deep")),
        ("crate::a::deep::Deep::new", Some("a::deep")),
        ("crate::bee", Some("b")),
        ("super::Own", Some("")),
        ("self::Seen", Some("a::deep")),
        ("crate::c::Thing", None),
        ("std::fs", None),
    ] {
        assert_eq!(resolve(path).as_deref(), target, "{path}");
    }
}

#[test]
fn modules_that_need_each_other_are_found() {
    let arrows = |pairs: &[(&str, &str)]| -> Arrows {
        pairs.iter().map(|(from, to)| (((*from).into(), (*to).into()), Vec::new())).collect()
    };
    assert!(cycles(&arrows(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    let found = cycles(&arrows(&[("a", "b"), ("b", "c"), ("c", "b"), ("d", "e"), ("e", "d")]));
    assert_eq!(found, [vec!["b", "c"], vec!["d", "e"]]);
}
