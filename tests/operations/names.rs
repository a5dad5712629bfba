//! Names and documentation, counted over whole files: each count may only fall.
//!
//! A count stands beside its rule. Where the tree is worse than that, the test fails and lists where;
//! where it is better, the number here is lowered with the change that made it so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Modules in which one type name may be defined.
const MODULES_PER_NAME_MAX: usize = 2;
/// Words of a documentation comment that says too little.
const SHORT_DOC_WORDS: usize = 3;
/// Names of functions that do not say what the function does.
const VAGUE_FUNCTIONS: [&str; 3] = ["of", "told", "said"];
/// How a documentation comment begins that cannot be read without its neighbour.
const POINTING: [&str; 4] = ["The same", "As ", "Likewise", "Ditto"];
/// How the comment of an endpoint begins: its method and path are all that its handler needs.
const METHODS: [&str; 5] = ["`GET ", "`POST ", "`PUT ", "`PATCH ", "`DELETE "];

/// One source file.
struct Source {
    path: PathBuf,
    text: String,
}

/// All Rust files of the product: below `src`, and below `crates` if there is such a directory.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for directory in ["src", "crates"] {
        collect(&root.join(directory), &mut paths);
    }
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file can be read");
        let path = path.strip_prefix(root).expect("a path below the root").to_owned();
        Source { path, text }
    };
    let sources: Vec<Source> = paths.into_iter().map(read).collect();
    assert!(sources.len() > 300, "only {} source files were found", sources.len());
    sources
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries {
        let path = entry.expect("an entry of a directory").path();
        let is_built = path.file_name().is_some_and(|name| name == "target");
        if path.is_dir() && !is_built {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

/// Fails where there are more places than `most`, and prints how many there are.
fn hold(what: &str, places: &BTreeSet<String>, most: usize) {
    println!("{what}: {} (at most {most})", places.len());
    let list: Vec<&str> = places.iter().map(String::as_str).collect();
    assert!(
        places.len() <= most,
        "{what}: there are {}, and there were {most}:\n{}",
        places.len(),
        list.join("\n")
    );
}

/// The type that a line defines. Aliases count at the top of a file only: elsewhere they are the
/// associated types of traits, whose names the trait chooses.
fn defined_type(line: &str) -> Option<&str> {
    let mut code = line.trim_start();
    if let Some(rest) = code.strip_prefix("pub") {
        code = match rest.strip_prefix('(') {
            Some(rest) => rest.split_once(')')?.1,
            None => rest,
        };
    }
    let (keyword, rest) = code.trim_start().split_once(' ')?;
    let is_definition = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (is_definition && rest.starts_with(char::is_uppercase)).then(|| &rest[..end])
}

/// Type names and the files that define them.
fn types(sources: &[Source]) -> BTreeMap<&str, BTreeSet<String>> {
    let mut types: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        for name in source.text.lines().filter_map(defined_type) {
            types.entry(name).or_default().insert(source.path.display().to_string());
        }
    }
    types
}

/// The functions of a file: the line, the name, and what follows the name.
fn functions(source: &Source) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut offset = 0;
    source.text.split_inclusive('\n').enumerate().filter_map(move |(number, line)| {
        let begins_at = offset;
        offset += line.len();
        let code = line.trim_start();
        if code.starts_with("//") {
            return None;
        }
        let at = line.find("fn ").filter(|at| *at == 0 || line[..*at].ends_with(' '))?;
        let rest = &source.text[begins_at + at + 3..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        (end > 0).then(|| (number + 1, &rest[..end], &rest[end..]))
    })
}

/// Whether a parameter of a function is a tuple without a name. `rest` is what follows its name.
fn takes_tuple(rest: &str) -> bool {
    let (mut depth, mut angles, mut at_start) = (0_usize, 0_usize, false);
    let mut before = ' ';
    for c in rest.chars() {
        match c {
            '<' if depth == 0 => angles += 1,
            '>' if depth == 0 && before != '-' => angles = angles.saturating_sub(1),
            '(' if depth == 0 && angles > 0 => {}
            ')' if depth == 0 => {}
            '(' if depth == 1 && at_start => return true,
            '(' | '[' | '{' => {
                if depth == 0 && c != '(' {
                    return false;
                }
                depth += 1;
                at_start = depth == 1;
            }
            ')' | ']' | '}' => {
                depth -= 1;
                if depth == 0 {
                    return false;
                }
            }
            ',' if depth == 1 => at_start = true,
            ';' if depth == 0 => return false,
            c if c.is_whitespace() => {}
            _ => at_start = false,
        }
        before = c;
    }
    false
}

/// Documentation comments of items: the line and the text of each.
fn documentation(source: &Source) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in source.text.lines().enumerate() {
        match line.trim_start().strip_prefix("///") {
            Some(text) => {
                match blocks.last_mut().filter(|_| goes_on) {
                    Some((_, block)) => {
                        block.push(' ');
                        block.push_str(text.trim());
                    }
                    None => blocks.push((number + 1, text.trim().to_owned())),
                }
                goes_on = true;
            }
            None => goes_on = false,
        }
    }
    blocks
}

/// The places where a documentation comment is as `is_poor` says.
fn poor_documentation(is_poor: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut places = BTreeSet::new();
    for source in sources() {
        for (line, text) in documentation(&source) {
            if is_poor(&text) {
                places.insert(format!("{}:{line}: {text}", source.path.display()));
            }
        }
    }
    places
}

/// The places of functions that are as `is_poor` says, by their name and what follows it.
fn poor_functions(is_poor: impl Fn(&str, &str) -> bool) -> BTreeSet<String> {
    let mut places = BTreeSet::new();
    for source in sources() {
        for (line, name, rest) in functions(&source) {
            if is_poor(name, rest) {
                places.insert(format!("{}:{line}: fn {name}", source.path.display()));
            }
        }
    }
    places
}

#[test]
fn a_type_name_is_defined_in_two_modules_at_most() {
    let sources = sources();
    let many = types(&sources).into_iter().filter(|(_, files)| files.len() > MODULES_PER_NAME_MAX);
    let places = many.map(|(name, files)| {
        let files: Vec<String> = files.into_iter().collect();
        format!("{name} ({}): {}", files.len(), files.join(", "))
    });
    hold("type names defined in more than two modules", &places.collect(), 0);
}

#[test]
fn functions_say_what_they_do() {
    let places = poor_functions(|name, _| VAGUE_FUNCTIONS.contains(&name));
    hold("functions called `of`, `told` or `said`", &places, 29);
}

#[test]
fn parameters_have_names() {
    let places = poor_functions(|_, rest| takes_tuple(rest));
    hold("functions with a tuple without a name among their parameters", &places, 34);
}

#[test]
fn documentation_says_more_than_three_words() {
    let places = poor_documentation(|text| {
        let is_endpoint = METHODS.iter().any(|method| text.starts_with(method));
        !is_endpoint && text.split_whitespace().count() <= SHORT_DOC_WORDS
    });
    hold("documentation of three words or fewer", &places, 314);
}

#[test]
fn documentation_stands_alone() {
    let places = poor_documentation(|text| POINTING.iter().any(|start| text.starts_with(start)));
    hold("documentation that points at a neighbour", &places, 20);
}

#[test]
fn what_is_counted_is_what_is_meant() {
    assert_eq!(defined_type("pub(in crate::a) struct Asked<T>(T);"), Some("Asked"));
    assert_eq!(defined_type("    enum Kind {"), Some("Kind"));
    assert_eq!(defined_type("type Pieces = Vec<u8>;"), Some("Pieces"));
    assert_eq!(defined_type("    type Rejection = Response;"), None);
    assert_eq!(defined_type("// struct Asked;"), None);
    for (rest, expected) in [
        ("(self, (one, two): (u8, u8)) {", true),
        ("<T>(\n    one: T,\n    (two, three): (u8, u8),\n) -> u8 {", true),
        ("(Path((one, two)): Path<(u8, u8)>) {", false),
        ("(one: impl Fn((u8, u8)) -> u8, two: &[(u8, u8)]) -> (u8, u8) {", false),
        ("<F: Fn((u8, u8)) -> u8>(one: F) {", false),
        ("() -> u8 { let (one, two) = (1, 2); one }", false),
    ] {
        assert_eq!(takes_tuple(rest), expected, "{rest}");
    }
}
