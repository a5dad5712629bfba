//! Expands `${VAR}`, `${VAR:-default}`, `$$` and `{file: PATH}` after parsing.
//!
//! Expansion works on the values of a parsed document, so nothing that a variable holds can change
//! the structure of a file.

use std::io::Read as _;
use std::path::Path as FilePath;

use serde_yaml::Value;

use super::fault::Fault;
use super::shown::is_variable_name;
use super::spans::{DocumentPath, Spans, WalkPath};

/// Looks up the value of an environment variable.
pub(super) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A secret in a file is at most this long, in bytes: a key or a token, not a device.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// A reference to a variable or file that could not be expanded.
#[derive(Clone, Debug)]
pub(super) struct ExpansionError {
    /// The path of the value at fault.
    pub(super) path: DocumentPath,
    /// Name of the variable or file, and the reason: the beginning of a sentence.
    pub(super) reason: String,
    /// Suggested fix for the operator.
    pub(super) help: String,
}

/// Fills in the values of a document.
pub(super) struct Expansion<'a> {
    /// Source of the environment variables.
    pub(super) env: Env<'a>,
    /// Directory that relative paths of `{file: PATH}` begin at.
    pub(super) directory: &'a FilePath,
    /// The values as they were typed, with their places.
    pub(super) spans: &'a Spans,
    /// Missing variables and files.
    pub(super) unfilled: Vec<ExpansionError>,
    /// Malformed expressions.
    pub(super) faults: Vec<Fault>,
}

impl Expansion<'_> {
    /// Expands everything below `value`. Unresolved expressions stay as written. Decimal numbers become text
    /// as written: no price may pass through a float.
    pub(super) fn fill(&mut self, value: &mut Value, path: &WalkPath<'_>) {
        match value {
            Value::String(text) => {
                if let Some(filled) = self.text(text, path) {
                    *text = filled;
                }
            }
            Value::Number(number) if number.is_f64() => {
                // As typed: through a float, `0.1` per million units would not be exact.
                let typed = self.spans.text(&path.to_path()).unwrap_or_default().to_owned();
                *value = Value::String(typed);
            }
            Value::Sequence(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.fill(item, &path.index(index));
                }
            }
            Value::Mapping(fields) => {
                for (key, field) in fields.iter_mut() {
                    self.fill(field, &path.key(key.as_str().unwrap_or_default()));
                }
                // A mapping of `file` alone; with other fields beside it, `file` is one of a section.
                let file = fields.get("file").and_then(Value::as_str).filter(|_| fields.len() == 1);
                if let Some(text) = file.and_then(|file| self.file(file, path)) {
                    *value = Value::String(text);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Tagged(_) => {}
        }
    }

    /// The filled-in text; `None` without anything to fill in, and where something is missing or wrong, which
    /// is noted.
    fn text(&mut self, typed: &str, path: &WalkPath<'_>) -> Option<String> {
        if !typed.contains('$') {
            return None;
        }
        let mut filled = String::with_capacity(typed.len());
        let mut rest = typed;
        while let Some((before, after)) = rest.split_once('$') {
            filled.push_str(before);
            if let Some(after) = after.strip_prefix('$') {
                filled.push('$');
                rest = after;
            } else if let Some(after) = after.strip_prefix('{') {
                let Some((expression, after)) = after.split_once('}') else {
                    self.fault(
                        path,
                        "`${` without its `}`",
                        "write `${NAME}` or `${NAME:-default}`",
                    );
                    return None;
                };
                filled.push_str(&self.variable(expression, path)?);
                rest = after;
            } else {
                self.fault(
                    path,
                    "a single `$`",
                    "write `$$` for a dollar sign, `${NAME}` for a variable",
                );
                return None;
            }
        }
        filled.push_str(rest);
        Some(filled)
    }

    fn variable(&mut self, expression: &str, path: &WalkPath<'_>) -> Option<String> {
        let (name, default) = match expression.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (expression, None),
        };
        if !is_variable_name(name) {
            let help = "a name has letters, digits and `_`: `${NAME}` or `${NAME:-default}`";
            // It is not repeated: it may be the secret itself.
            self.fault(path, "what stands in `${…}` is not the name of a variable", help);
            return None;
        }
        // Container platforms set unset variables to the empty string.
        let found = (self.env)(name).filter(|value| !value.is_empty());
        let filled = found.or_else(|| default.map(str::to_owned));
        if filled.is_none() {
            self.unfilled.push(ExpansionError {
                path: path.to_path(),
                reason: format!("the environment variable `{name}` is not set"),
                help: format!("set it, or give it a default: `${{{name}:-…}}`"),
            });
        }
        filled
    }

    fn file(&mut self, name: &str, path: &WalkPath<'_>) -> Option<String> {
        match read_secret(&self.directory.join(name)) {
            Ok(text) => Some(text),
            Err(reason) => {
                self.unfilled.push(ExpansionError {
                    path: path.to_path(),
                    reason: format!("the file `{name}` cannot be used: {reason}"),
                    help:
                        "make it a readable file with the value in it; a relative path begins at \
                           the directory of this YAML file"
                            .to_owned(),
                });
                None
            }
        }
    }

    fn fault(&mut self, path: &WalkPath<'_>, message: &str, help: &str) {
        self.faults.push(Fault::at_value(&path.to_path(), message).help(help));
    }
}

/// The text of a file without the line break at its end.
fn read_secret(path: &FilePath) -> Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    // Opening a FIFO would block until somebody writes to it.
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    if read.map_err(|error| error.to_string())? as u64 > FILE_BYTES_MAX {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    // Editors and `echo` end a file with a line break, which is no part of a secret.
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(yaml: &str) -> (Value, Vec<String>, Vec<String>) {
        let spans = Spans::parse(yaml).expect("valid YAML");
        let mut value = serde_yaml::from_str(yaml).expect("valid YAML");
        let env = |name: &str| match name {
            "KEY" => Some("a: ${KEY} }b".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let directory = FilePath::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let mut expansion =
            Expansion { env: &env, directory, spans: &spans, unfilled: vec![], faults: vec![] };
        expansion.fill(&mut value, &WalkPath::Root);
        let unfilled = expansion.unfilled.iter().map(|u| u.reason.clone()).collect();
        let faults = expansion.faults.iter().map(|f| f.message.clone()).collect();
        (value, unfilled, faults)
    }

    #[test]
    fn variables_are_filled_in_once_and_as_text() {
        let yaml = "[\"<${KEY}>\", 'cost: $$5', '${NONE:-x:-y}${EMPTY:-z}', '${NONE:-}', 0.10]";
        let (value, unfilled, faults) = expand(yaml);
        let expected = ["<a: ${KEY} }b>", "cost: $5", "x:-yz", "", "0.10"];
        assert_eq!(value, serde_yaml::to_value(expected).expect("a value"));
        assert!(unfilled.is_empty() && faults.is_empty(), "{unfilled:?} {faults:?}");
    }

    #[test]
    fn what_is_missing_or_wrong_is_said_for_each_place() {
        let yaml = "[\"${NONE}\", \"${EMPTY}\", {file: no/such}, {file: src}, \
                    \"${KEY\", 'a$b', \"${1}\", \"${}\"]";
        let (_, unfilled, faults) = expand(yaml);
        assert_eq!(unfilled.len(), 4, "two variables and two files: {unfilled:?}");
        assert_eq!(faults.len(), 4, "four wrong expressions: {faults:?}");
    }

    #[test]
    fn a_file_gives_its_text_without_the_last_line_break() {
        let (value, unfilled, _) = expand("{token: {file: rustfmt.toml}}");
        let text = value.get("token").and_then(Value::as_str).unwrap_or_default();
        assert!(text.ends_with('"') && text.contains('\n'), "{text:?} {unfilled:?}");
    }
}
