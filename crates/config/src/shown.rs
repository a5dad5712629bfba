//! Parts of a file that may be displayed: in messages, in the log, over the admin API. A value is shown where
//! the file's schema has a field that is no secret; any other may be a secret under a misspelt name.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::Value as Json;

use super::spans::{Spans, WalkStep, is_telling};

/// True if the schema has a plain value at this path that is no secret.
pub(super) fn is_public(schema: &Json, steps: &[WalkStep<'_>]) -> bool {
    let root = SchemaPlace::root(schema);
    let Some((last, above)) = steps.split_last() else { return root.is_public() };
    let place = above.iter().fold(root, |place, step| place.below(*step));
    match last {
        WalkStep::Key("file") => place.has_public_file(),
        step => place.below(*step).is_public(),
    }
}

/// The schema that a reference within `root` names.
pub(super) fn referenced<'a>(root: &'a Json, reference: &str) -> Option<&'a Json> {
    // By name where it can be: `pointer` copies each of its steps, and every value of a file comes by here.
    match reference.strip_prefix("#/$defs/").filter(|name| !name.contains(['/', '~'])) {
        Some(name) => root.get("$defs")?.get(name),
        None => root.pointer(reference.trim_start_matches('#')),
    }
}

/// Schemas of a value during a walk through a document: each alternative, and whether it is a secret.
#[derive(Clone, Debug)]
pub(super) struct SchemaPlace<'a> {
    root: &'a Json,
    alternatives: Vec<(&'a Json, bool)>,
}

impl<'a> SchemaPlace<'a> {
    /// The place of the document itself.
    pub(super) fn root(root: &'a Json) -> Self {
        let mut place = Self { root, alternatives: Vec::new() };
        place.add(root, false);
        place
    }

    fn add(&mut self, schema: &'a Json, is_secret: bool) {
        if let Some(reference) = schema["$ref"].as_str() {
            if let Some(named) = referenced(self.root, reference) {
                self.add(named, is_secret);
            }
            return;
        }
        let is_secret = is_secret || self::is_secret(schema);
        match schema["anyOf"].as_array() {
            Some(options) => options.iter().for_each(|option| self.add(option, is_secret)),
            None => self.alternatives.push((schema, is_secret)),
        }
    }

    /// The place one step below. What is inside of a secret is nowhere.
    pub(super) fn below(&self, step: WalkStep<'_>) -> Self {
        self.step(step, false)
    }

    fn step(&self, step: WalkStep<'_>, is_in_secret: bool) -> Self {
        let mut place = Self { root: self.root, alternatives: Vec::new() };
        for (schema, is_secret) in &self.alternatives {
            let below = below(schema, step);
            if below.is_object() && (is_in_secret || !is_secret) {
                place.add(below, false);
            }
        }
        place
    }

    /// True if a plain value here is no secret.
    pub(super) fn is_public(&self) -> bool {
        self.alternatives.iter().any(|(schema, is_secret)| !is_secret && is_scalar(schema))
    }

    /// True if the path of a file here, below the key `file`, is no secret.
    pub(super) fn has_public_file(&self) -> bool {
        // Every value can stand in a file of its own, of which the path is no secret.
        self.alternatives.iter().any(|(schema, _)| is_scalar(schema))
            || self.step(WalkStep::Key("file"), true).is_public()
    }
}

/// The schema one step below another; no object if there is none.
fn below<'a>(schema: &'a Json, step: WalkStep<'_>) -> &'a Json {
    match step {
        WalkStep::Key(key) => {
            schema["properties"].get(key).unwrap_or(&schema["additionalProperties"])
        }
        WalkStep::Index(_) => &schema["items"],
    }
}

/// JSON Schema's word for what is written and never read back.
fn is_secret(schema: &Json) -> bool {
    schema["writeOnly"] == true
}

fn is_scalar(schema: &Json) -> bool {
    let is_one = |kind: &Json| {
        kind.as_str().is_some_and(|kind| !matches!(kind, "object" | "array" | "null"))
    };
    match &schema["type"] {
        Json::Array(kinds) => kinds.iter().any(is_one),
        Json::Null => schema["oneOf"].is_array() || schema["enum"].is_array(),
        kind => is_one(kind),
    }
}

/// True if a value may be shown as typed.
pub(super) fn may_be_shown(schema: &Json, steps: &[WalkStep<'_>], typed: &str) -> bool {
    let tells = matches!(steps.last(), Some(WalkStep::Key(key)) if is_telling(key, typed));
    is_variable(typed) || (is_public(schema, steps) && !tells)
}

/// True for a text that is only a variable, without a default.
pub(super) fn is_variable(text: &str) -> bool {
    let name = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(is_variable_name)
}

/// True for a text that can be the name of a variable.
pub(super) fn is_variable_name(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The characters of these lines, from 1, of a file, with asterisks over what may not be shown, and without comments,
/// which say what a value was before.
pub(super) fn lines(
    text: &str,
    spans: &Spans,
    schema: &Json,
    numbers: &BTreeSet<usize>,
) -> HashMap<usize, Vec<char>> {
    let numbered = (1..).zip(text.split('\n'));
    let mut lines: HashMap<usize, Vec<char>> = numbered
        .filter(|(number, _)| numbers.contains(number))
        .map(|(number, line)| (number, line.chars().collect()))
        .collect();
    let mut inside: HashMap<usize, Vec<(usize, usize)>> = HashMap::new();
    for scalar in spans.scalars() {
        let steps = scalar.path.walk_steps();
        let is_hidden = !may_be_shown(schema, &steps, scalar.text);
        // `{a, b}` is two keys that say nothing: values that were to stand in a list.
        let is_bare = matches!(scalar.text, "" | "~") && !is_public(schema, &steps);
        let key = scalar.key.map(|mark| {
            let from = mark.column.saturating_sub(1);
            ((mark.line, from), (mark.line, from + mark.width), is_bare)
        });
        for (from, to, is_hidden) in key.into_iter().chain([(scalar.from, scalar.to, is_hidden)]) {
            for number in numbers.range(from.0..=to.0) {
                let Some(line) = lines.get_mut(number) else { continue };
                let first = if *number == from.0 { from.1 } else { 0 };
                let last = if *number == to.0 { to.1 } else { line.len() };
                inside.entry(*number).or_default().push((first, last));
                let is_key = is_bare && (from, to) != (scalar.from, scalar.to);
                let goes_on = line.get(last..).unwrap_or_default();
                let has_colon = goes_on.iter().find(|c| !c.is_whitespace()) == Some(&':');
                // A key with a colon behind it is a field whose value is missing, and no secret in a list.
                if is_hidden && !(is_key && has_colon) {
                    hide(line, first, last);
                }
            }
        }
    }
    let shown = lines.into_iter().map(|(number, mut line)| {
        let inside = inside.get(&number).map(Vec::as_slice).unwrap_or_default();
        // A comment may hold an old key.
        let end = comment_in(&line, inside).unwrap_or(line.len());
        line.truncate(end);
        line.truncate(line.iter().rposition(|c| !c.is_whitespace()).map_or(0, |last| last + 1));
        (number, line)
    });
    shown.collect()
}

fn hide(line: &mut [char], first: usize, last: usize) {
    let hidden = line.iter_mut().take(last).skip(first);
    hidden.filter(|c| !c.is_whitespace()).for_each(|c| *c = '*');
}

/// Start of a comment outside all values, which may come in any order.
fn comment_in(line: &[char], inside: &[(usize, usize)]) -> Option<usize> {
    let mut ends: Vec<(usize, usize)> = inside.to_vec();
    ends.sort_unstable();
    // The furthest end of the values that begin at or before a character: one pass over both.
    let (mut values, mut inside_to) = (ends.into_iter().peekable(), 0);
    line.iter().enumerate().position(|(at, c)| {
        while let Some((_, end)) = values.next_if(|(first, _)| *first <= at) {
            inside_to = inside_to.max(end);
        }
        let before = at.checked_sub(1).and_then(|before| line.get(before));
        *c == '#' && at >= inside_to && before.is_none_or(|c| c.is_whitespace())
    })
}

/// The names of all fields that the schema knows and that are no secrets.
fn field_names<'a>(schema: &'a Json, names: &mut HashSet<&'a str>) {
    match schema {
        Json::Object(keywords) => {
            for (keyword, value) in keywords {
                if let (true, Some(properties)) = (keyword == "properties", value.as_object()) {
                    let open = properties.iter().filter(|(_, field)| !is_secret(field));
                    names.extend(open.map(|(name, _)| name.as_str()));
                }
                field_names(value, names);
            }
        }
        Json::Array(items) => items.iter().for_each(|item| field_names(item, names)),
        _ => {}
    }
}

/// The characters of a line of a text that could not be parsed, so that it is not known where values end: whatever comes
/// after something else than the name of a known field is overwritten.
pub(super) fn guarded(line: &str, schema: &Json) -> Vec<char> {
    let mut names = HashSet::new();
    field_names(schema, &mut names);
    let characters: Vec<char> = line.chars().collect();
    let end = comment_in(&characters, &[]).unwrap_or(characters.len());
    let line: String = characters.into_iter().take(end).collect();
    let from = unknown_from(line.trim_end(), &names);
    let (shown, hidden) = line.trim_end().split_at(from);
    let hidden = hidden.chars().map(|c| if c.is_whitespace() { c } else { '*' });
    shown.chars().chain(hidden).collect()
}

/// Start of the part of a line that no known field explains.
fn unknown_from(line: &str, names: &HashSet<&str>) -> usize {
    let position = |rest: &str| line.len() - rest.len();
    let mut rest = line;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '-', '{', '}', '[', ']', ',', '"', '\'']);
        let is_letter = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let (word, behind) = rest.split_at(rest.find(|c| !is_letter(c)).unwrap_or(rest.len()));
        let Some(value) = behind.trim_start_matches(['"', '\'', ' ']).strip_prefix(':') else {
            return position(rest);
        };
        let (text, next) = value.split_at(value.find([',', '{', '[']).unwrap_or(value.len()));
        if !names.contains(word) || is_telling(word, text) {
            let value = value.trim_start();
            let variable = value.split([',', ' ', '}']).next().unwrap_or_default().len() + 1;
            let named = value.get(..variable.min(value.len())).unwrap_or_default();
            let is_named = is_variable(named.trim_matches(['"', '\'']));
            // What follows a mapping's name is looked at by itself.
            let opens = value.strip_prefix('{').filter(|_| !names.contains(word));
            match (is_named, opens) {
                (true, _) => rest = value.get(named.len()..).unwrap_or_default(),
                (false, Some(inner)) => rest = inner,
                (false, None) => return position(value),
            }
            continue;
        }
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::DocumentPath;

    fn schema() -> Json {
        crate::routes_schema()
    }

    #[test]
    fn only_fields_that_are_known_and_no_secrets_are_shown() {
        let schema = schema();
        let at = |steps: &[&str]| {
            let step = |path: DocumentPath, step: &&str| match step.parse() {
                Ok(index) => path.index(index),
                Err(_) => path.key(step),
            };
            steps.iter().fold(DocumentPath::root(), step)
        };
        for steps in [
            &["upstreams", "a", "base_url"][..],
            &["upstreams", "a", "protocol"],
            &["upstreams", "a", "timeouts", "read"],
            &["upstreams", "a", "credential", "file"],
            &["upstreams", "a", "credentials", "b", "file"],
            &["upstreams", "a", "pass_fields", "0"],
            &["listeners", "0", "address"],
            &["store", "postgres", "url"],
            &["store", "journal", "archive", "s3", "endpoint"],
            &["store", "journal", "archive", "s3", "secret_key", "file"],
        ] {
            assert!(is_public(&schema, &at(steps).walk_steps()), "{steps:?}");
        }
        for steps in [
            &["upstreams", "a", "credential"][..],
            &["upstreams", "a", "credential", "0"],
            &["upstreams", "a", "credential", "value"],
            &["upstreams", "a", "credentials", "b"],
            &["upstreams", "a", "credentials", "0"],
            &["upstreams", "a", "credentials"],
            &["upstreams", "a", "headers", "authorization"],
            &["upstreams", "a", "credental"],
            &["upstreams", "a", "tokens"],
            &["admin", "token"],
            &["admin", "operators", "0", "token"],
            &["store", "postgres", "password"],
            &["store", "postgres", "passwd"],
            &["store", "journal", "archive", "s3", "access_key"],
            &["store", "journal", "archive", "s3", "secret_key"],
            &["store", "journal", "archive", "s3", "secret"],
            &["nothing"],
        ] {
            assert!(!is_public(&schema, &at(steps).walk_steps()), "{steps:?}");
        }
    }

    /// The rule once more, as one recursion along a path.
    fn knows(root: &Json, schema: &Json, steps: &[WalkStep<'_>]) -> bool {
        if let Some(pointer) = schema["$ref"].as_str() {
            return referenced(root, pointer).is_some_and(|named| knows(root, named, steps));
        }
        // The path of a file is no secret, even where what the file holds is one.
        let is_file = matches!(steps, [WalkStep::Key("file")]);
        if is_secret(schema) && !is_file {
            return false;
        }
        if let Some(options) = schema["anyOf"].as_array() {
            return options.iter().any(|option| knows(root, option, steps));
        }
        let Some((step, rest)) = steps.split_first() else { return is_scalar(schema) };
        let below = below(schema, *step);
        // Every value can stand in a file of its own, of which the path is no secret.
        (below.is_object() && knows(root, below, rest)) || (is_file && is_scalar(schema))
    }

    #[test]
    fn a_walk_finds_public_values_where_their_paths_do() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for schema in [crate::routes_schema(), crate::models_schema()] {
            let mut names = HashSet::new();
            all_names(&schema, &mut names);
            let mut names: Vec<&str> = names.into_iter().chain(["file", "x", "0"]).collect();
            names.sort_unstable();
            let mut public_count = 0;
            for _ in 0..30_000 {
                let (mut place, mut steps) = (SchemaPlace::root(&schema), Vec::new());
                for _ in 0..random.usize(1..7) {
                    // Known names mostly, or no walk would get anywhere.
                    let listed: Vec<&str> = place
                        .alternatives
                        .iter()
                        .flat_map(|(schema, _)| {
                            schema["properties"].as_object().into_iter().flatten()
                        })
                        .map(|(name, _)| name.as_str())
                        .collect();
                    let names =
                        if listed.is_empty() || random.u8(..4) == 0 { &names } else { &listed };
                    let name = names[random.usize(..names.len())];
                    let step = match random.u8(..5) {
                        0 => WalkStep::Index(0),
                        1 => WalkStep::Key("file"),
                        _ => WalkStep::Key(name),
                    };
                    let above = place.clone();
                    place = place.below(step);
                    steps.push(step);
                    let found = match step {
                        WalkStep::Key("file") => above.has_public_file(),
                        _ => place.is_public(),
                    };
                    let expected = knows(&schema, &schema, &steps);
                    assert_eq!(found, expected, "{steps:?}, seed {seed}");
                    assert_eq!(is_public(&schema, &steps), expected, "{steps:?}, seed {seed}");
                    public_count += u32::from(expected);
                }
            }
            assert!(public_count > 100, "{public_count} public places");
        }
    }

    /// The names of all fields, secrets included.
    fn all_names<'a>(schema: &'a Json, names: &mut HashSet<&'a str>) {
        match schema {
            Json::Object(keywords) => keywords.iter().for_each(|(keyword, value)| {
                if let (true, Some(properties)) = (keyword == "properties", value.as_object()) {
                    names.extend(properties.keys().map(String::as_str));
                }
                all_names(value, names);
            }),
            Json::Array(items) => items.iter().for_each(|item| all_names(item, names)),
            _ => {}
        }
    }

    #[test]
    fn lines_that_are_no_yaml_keep_their_secrets() {
        let schema = schema();
        for (line, shown) in [
            (
                "  a: { protocol: openai, base_url: https://x",
                "  a: { protocol: openai, base_url: https://x",
            ),
            ("\tprotocol: openai", "\tprotocol: openai"),
            ("  credential: ${KEY} }", "  credential: ${KEY} }"),
        ] {
            assert_eq!(guarded(line, &schema).into_iter().collect::<String>(), shown, "{line}");
        }
        for line in [
            "  credental: canary",
            "\tapi_key: canary",
            "  - canary",
            "canary",
            "  credentials: [canary, canary",
            "  a: { protocol: openai, credential: canary",
            "  a: { protocol: openai, \"token\" : \"canary\"",
            "  base_url: http://me:canary@x",
            "  protocol: openai # canary",
            "# canary",
            "  credential: ${KEY:-canary",
            "  headers: { authorization: \"Bearer canary\"",
            "  tokens: canary, canary",
        ] {
            let shown: String = guarded(line, &schema).into_iter().collect();
            assert!(!shown.contains("canary"), "{line} is shown as {shown}");
        }
    }
}
