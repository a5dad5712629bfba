//! Names and documentation, counted over whole files: each count may only fall, but for the comments that
//! give a reason, which may only rise.
//!
//! A count stands beside its rule. Where the tree is worse than that, the test fails and lists where;
//! where it is better, the number here is lowered with the change that made it so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::sources::{
    blank_comments_and_strings, blank_unit_tests, files_below, product, relative,
};

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

/// Participles that stand for whatever they were done to.
const PARTICIPLES: [&str; 8] =
    ["asked", "told", "said", "heard", "wanted", "meant", "known", "gone"];
/// First words of documentation that begins with a clause instead of the thing.
const RELATIVES: [&str; 6] = ["what", "whether", "who", "whose", "which", "that"];
/// Words that are no name of a type when they stand alone: pronouns, prepositions, questions.
const NO_NOUNS: &str = "After All Any As At Before Behind Beside By Each Every For From His In Its Of Off \
    On Once One Or Other Otherwise Ours Out Own Per Some Than That Their Theirs Them These This Those To \
    Too Towards Until Up What When Where Whether Which Who Whom Whose Why With Within Without Nothing \
    Something Anything Everything Nobody Somebody Someone Way Thing Lack Ask Asking Want Has Is Thinks";
/// Words of households, of which no part of a type's name is made.
const HOUSEHOLD: &str = "Broom Cupboard Desk Door Doors Drawer House Kitchen Pantry Pen Pocket \
    Purse Room Seat Shelf Teller";
/// Participles without `-ed` that are no name of a type when they stand alone.
const IRREGULAR: &str = "Begun Bought Broken Built Chosen Cut Done Drawn Found Given Gone Heard Held Hidden \
    Kept Known Left Lent Lost Made Meant Met Paid Run Said Seen Sent Shown Shut Sold Spent Spoken Sung \
    Swept Taken Told Understood Unpaid Woken Written Begun Withheld Reread";

/// Documentation of `SHORT_DOC_WORDS` words or fewer.
const SHORT_DOCS: usize = 223;
/// Type names that two modules define. Goal: 60.
const TWICE: usize = 39;
/// Identifiers with one of `PARTICIPLES`, in tenths of one in 1,000 lines. Goal: 20.
const PRODUCT_PARTICIPLES: usize = 3;
/// `PRODUCT_PARTICIPLES` for the integration tests.
const TESTS_PARTICIPLES: usize = 1;
/// Documentation that begins with one of `RELATIVES`, in tenths of a percent. Goal: 40.
const PRODUCT_RELATIVES: usize = 1;
/// `PRODUCT_RELATIVES` for the integration tests.
const TESTS_RELATIVES: usize = 0;
/// Type names that are no nouns.
const NO_NOUN_TYPES: usize = 0;
/// Comments inside code, in 1,000 lines of code. Goal: 20.
const REASONS: usize = 19;
/// One source file.
struct Source {
    path: PathBuf,
    text: String,
}

/// All Rust files of the product.
fn sources() -> Vec<Source> {
    read(product())
}

/// All Rust files of the integration tests.
fn integration_tests() -> Vec<Source> {
    read(files_below("tests", "rs"))
}

fn read(paths: Vec<PathBuf>) -> Vec<Source> {
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file can be read");
        Source { path: relative(&path).into(), text }
    };
    paths.into_iter().map(read).collect()
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

/// True if a parameter of a function is a tuple without a name. `rest` is what follows its name.
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

/// Documentation comments with one of these marks: the line and the text of each.
fn documentation(source: &Source, marks: &[&str]) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in source.text.lines().enumerate() {
        let line = line.trim_start();
        match marks.iter().find_map(|mark| line.strip_prefix(mark)) {
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
    // Documentation of commands is the help that they print, where a table of short lines is right.
    let is_help = |source: &Source| source.path.starts_with("crates/cli");
    for source in sources().into_iter().filter(|source| !is_help(source)) {
        for (line, text) in documentation(&source, &["///"]) {
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
    hold("functions called `of`, `told` or `said`", &places, 24);
}

#[test]
fn parameters_have_names() {
    let places = poor_functions(|_, rest| takes_tuple(rest));
    hold("functions with a tuple without a name among their parameters", &places, 31);
}

#[test]
fn documentation_says_more_than_three_words() {
    let places = poor_documentation(|text| {
        let is_endpoint = METHODS.iter().any(|method| text.starts_with(method));
        !is_endpoint && text.split_whitespace().count() <= SHORT_DOC_WORDS
    });
    hold("documentation of three words or fewer", &places, SHORT_DOCS);
}

#[test]
fn documentation_stands_alone() {
    let places = poor_documentation(|text| POINTING.iter().any(|start| text.starts_with(start)));
    hold("documentation that points at a neighbour", &places, 20);
}

#[test]
fn few_type_names_are_defined_in_two_modules() {
    let sources = sources();
    let twice = types(&sources).into_iter().filter(|(_, files)| files.len() == 2);
    let places = twice.map(|(name, files)| {
        let files: Vec<String> = files.into_iter().collect();
        format!("{name}: {}", files.join(", "))
    });
    hold("type names defined in exactly two modules", &places.collect(), TWICE);
}

/// The words of a name: `AskedAt` and `asked_at` are `asked`, `at`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && !before.is_uppercase() {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().expect("there is one").extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Identifiers of a file, each time that they stand there.
fn identifiers(text: &str) -> Vec<String> {
    let code = blank_comments_and_strings(text);
    let names = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    names.filter(|name| name.starts_with(|c: char| !c.is_numeric())).map(str::to_owned).collect()
}

/// Fails where there are more per `unit` than `most`, in tenths, and names the files that have most.
fn hold_rate(what: &str, counts: &[(usize, String)], of: usize, unit: usize, most: usize) {
    let found: usize = counts.iter().map(|(count, _)| count).sum();
    let rate = found * unit * 10 / of;
    let shown = |tenths: usize| format!("{}.{}", tenths / 10, tenths % 10);
    println!("{what}: {found}, {} in {unit} (at most {})", shown(rate), shown(most));
    let mut worst = counts.to_vec();
    worst.sort_by(|one, other| other.cmp(one));
    let worst: Vec<_> =
        worst.iter().take(30).map(|(count, path)| format!("{count} {path}")).collect();
    assert!(
        rate <= most,
        "{what}: {} in {unit}, and there were {}. Most are in\n{}",
        shown(rate),
        shown(most),
        worst.join("\n")
    );
}

/// Identifiers with a participle in each file, and the lines of all.
fn participles(sources: &[Source]) -> (Vec<(usize, String)>, usize) {
    let is_one =
        |name: &String| words(name).iter().any(|word| PARTICIPLES.contains(&word.as_str()));
    let count =
        |source: &Source| identifiers(&source.text).iter().filter(|name| is_one(name)).count();
    let counts = sources.iter().map(|source| (count(source), source.path.display().to_string()));
    (counts.collect(), sources.iter().map(|source| source.text.lines().count()).sum())
}

#[test]
fn identifiers_have_no_participles_for_nouns() {
    let (counts, lines) = participles(&sources());
    hold_rate(
        "identifiers with a participle for a noun",
        &counts,
        lines,
        1000,
        PRODUCT_PARTICIPLES,
    );
    let (counts, lines) = participles(&integration_tests());
    hold_rate("the same in tests", &counts, lines, 1000, TESTS_PARTICIPLES);
}

/// Documentation that begins with a relative in each file, and the number of all comments.
fn clauses(sources: &[Source]) -> (Vec<(usize, String)>, usize) {
    let is_clause = |text: &str| {
        let first = text.split(|c: char| !c.is_ascii_alphabetic()).find(|word| !word.is_empty());
        first.is_some_and(|word| RELATIVES.contains(&word.to_lowercase().as_str()))
    };
    let mut all = 0;
    let counts = sources.iter().map(|source| {
        let comments = documentation(source, &["///", "//!"]);
        all += comments.len();
        let clauses = comments.iter().filter(|(_, text)| is_clause(text)).count();
        (clauses, source.path.display().to_string())
    });
    (counts.collect(), all)
}

#[test]
fn documentation_begins_with_the_thing() {
    let (counts, all) = clauses(&sources());
    hold_rate("documentation that begins with a relative", &counts, all, 100, PRODUCT_RELATIVES);
    let (counts, all) = clauses(&integration_tests());
    hold_rate("the same in tests", &counts, all, 100, TESTS_RELATIVES);
}

/// Comments inside the code give reasons: an order, a bound, a race, a provider's quirk.
#[test]
fn code_says_why() {
    let (mut reasons, mut code) = (0, 0);
    for source in sources() {
        let text = blank_unit_tests(&source.text);
        for line in text.lines().map(str::trim_start).filter(|line| !line.is_empty()) {
            match line.strip_prefix("//") {
                Some(rest) => reasons += usize::from(!rest.starts_with(['/', '!'])),
                None => code += 1,
            }
        }
    }
    let rate = reasons * 1000 / code;
    println!("comments inside code: {reasons} in {code} lines, {}.{} in 100", rate / 10, rate % 10);
    assert!(rate >= REASONS, "{rate} comments in 1,000 lines of code, and there were {REASONS}");
}

#[test]
fn type_names_are_nouns() {
    let is_listed = |list: &str, word: &str| list.split_whitespace().any(|listed| listed == word);
    let sources = sources();
    let forbidden = types(&sources).into_keys().filter(|name| {
        let words = words(name);
        let is_household = words.iter().any(|word| {
            let capital = word[..1].to_uppercase() + &word[1..];
            is_listed(HOUSEHOLD, &capital)
        });
        let alone = words.len() == 1 && (is_listed(NO_NOUNS, name) || is_participle(name));
        alone || is_household
    });
    hold("type names that are no nouns", &forbidden.map(str::to_owned).collect(), NO_NOUN_TYPES);
}

/// True for a word that is a participle: by its ending, or by the list of those without one.
fn is_participle(word: &str) -> bool {
    const NOUNS: [&str; 5] = ["Embed", "Feed", "Need", "Seed", "Sled"];
    (word.ends_with("ed") && !NOUNS.contains(&word))
        || IRREGULAR.split_whitespace().any(|listed| listed == word)
}

#[test]
fn the_counters_count_what_they_say() {
    assert_eq!(words("AskedAt"), ["asked", "at"]);
    assert_eq!(words("HTTP_unasked2X"), ["http", "unasked2", "x"]);
    assert_eq!(identifiers("a.told // said\n + \"gone\""), ["a", "told"]);
    assert!(is_participle("Settled") && is_participle("Told") && !is_participle("Seed"));
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
