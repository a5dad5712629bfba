//! One YAML file on its way from bytes to typed values, and the faults found in it.

use std::path::{Path as FilePath, PathBuf};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_yaml::Value;

use super::diagnostic::{Diagnostic, Place, Severity};
use super::expand::{Env, Expansion, Unfilled};
use super::spans::{Mark, Path, SECRET_FIELDS, Spans, Step, URL_FIELDS, is_telling, syntax_help};
use super::{described, shape};

/// The largest file that is read, in bytes: ten thousand models are about 3 MiB.
const FILE_BYTES_MAX: usize = 16 << 20;

/// Something to say about a value of a document.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// Which value.
    pub(super) path: Path,
    /// Whether its key is meant, rather than the value.
    on_key: bool,
    severity: Severity,
    /// What is the matter.
    pub(super) message: String,
    help: Option<String>,
}

impl Fault {
    /// An error in a value.
    pub(super) fn at_value(path: &Path, message: impl Into<String>) -> Self {
        Self {
            path: path.clone(),
            on_key: false,
            severity: Severity::Error,
            message: message.into(),
            help: None,
        }
    }

    /// An error in a key, or in what is missing below it.
    pub(super) fn at_key(path: &Path, message: impl Into<String>) -> Self {
        Self { on_key: true, ..Self::at_value(path, message) }
    }

    /// Makes it a warning.
    pub(super) fn warning(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }

    /// Makes it a note.
    pub(super) fn note(self) -> Self {
        Self { severity: Severity::Note, ..self }
    }

    /// Adds what to do.
    pub(super) fn help(self, help: impl Into<String>) -> Self {
        self.maybe_help(Some(help.into()))
    }

    /// Adds what to do, if that is known.
    pub(super) fn maybe_help(self, help: Option<String>) -> Self {
        Self { help, ..self }
    }
}

/// A file whose YAML is in order; its fields may not be.
#[derive(Debug)]
pub(super) struct Document {
    /// The file, as the operator named it.
    file: String,
    /// The text with secrets overwritten, for diagnostics.
    shown: String,
    spans: Spans,
    /// The values as typed, for showing and comparing.
    pub(super) described: serde_json::Value,
    value: Value,
    /// What could not be filled in.
    pub(super) unfilled: Vec<Unfilled>,
    faults: Vec<Fault>,
}

impl Document {
    /// Parses a file's bytes and fills in its values.
    ///
    /// # Errors
    /// Everything that keeps the text from being one plain YAML document.
    pub(super) fn parse(file: &str, bytes: &[u8], env: Env<'_>) -> Result<Self, Vec<Diagnostic>> {
        let whole_file = |message: String| {
            let (file, severity) = (file.to_owned(), Severity::Error);
            vec![Diagnostic { severity, message, file, place: None, help: None }]
        };
        if bytes.len() > FILE_BYTES_MAX {
            return Err(whole_file(format!("this file is longer than {FILE_BYTES_MAX} bytes")));
        }
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
            Err(error) => {
                let line =
                    bytes.iter().take(error.valid_up_to()).filter(|b| **b == b'\n').count() + 1;
                return Err(whole_file(format!("this file is not UTF-8 text: see line {line}")));
            }
        };
        let spans = Spans::parse(text).map_err(|refusals| {
            let mut diagnostics: Vec<_> = refusals
                .into_iter()
                .map(|refusal| Diagnostic {
                    severity: Severity::Error,
                    message: refusal.message,
                    file: file.to_owned(),
                    place: Some(guarded(place(text, refusal.mark))),
                    help: refusal.help.map(str::to_owned),
                })
                .collect();
            diagnostics.dedup();
            diagnostics
        })?;
        let mut value: Value = serde_yaml::from_str(text).map_err(|error| {
            let mut diagnostics = whole_file(format!("this is not YAML: {error}"));
            if let (Some(diagnostic), Some(at)) = (diagnostics.first_mut(), error.location()) {
                let mark = Mark { line: at.line(), column: at.column(), width: 1 };
                diagnostic.place = Some(guarded(place(text, mark)));
                diagnostic.help = syntax_help(text, mark.line).map(str::to_owned);
            }
            diagnostics
        })?;
        if value.is_null() {
            value = Value::Mapping(serde_yaml::Mapping::new());
        }
        let described = described::describe(&value);
        let directory = FilePath::new(file).parent().unwrap_or(FilePath::new(""));
        let (unfilled, faults) = (Vec::new(), Vec::new());
        let mut expansion = Expansion { env, directory, spans: &spans, unfilled, faults };
        expansion.fill(&mut value, &Path::root());
        let Expansion { unfilled, faults, .. } = expansion;
        let shown = masked(text, &spans);
        Ok(Self { file: file.to_owned(), shown, spans, described, value, unfilled, faults })
    }

    /// Checks the shape and reads the values. Entries of the mappings named in `maps`, and else
    /// whole top-level fields, are left out where they are at fault, so that what is in order can
    /// be checked further.
    pub(super) fn read<T: DeserializeOwned + JsonSchema>(&mut self, maps: &[&str]) -> Option<T> {
        let mut faults = shape::check(&self.value, &shape::schema_of::<T>(), &self.spans);
        // What could not be filled in has been said; that the bare `${X}` is no URL need not be.
        let said = |path: &Path| {
            self.faults.iter().any(|fault| fault.path == *path)
                || self.unfilled.iter().any(|unfilled| unfilled.path == *path)
        };
        faults.retain(|fault| !said(&fault.path));
        self.faults.append(&mut faults);

        let mut sound = self.value.clone();
        let unfilled = self.unfilled.iter().map(|unfilled| &unfilled.path);
        for path in self.faults.iter().map(|fault| &fault.path).chain(unfilled) {
            prune(&mut sound, path.steps(), maps);
        }
        match serde_path_to_error::deserialize(sound) {
            Ok(read) => Some(read),
            Err(error) => {
                let path = Path::from(error.path());
                if self.faults.is_empty() {
                    self.faults.push(Fault::at_value(&path, error.into_inner().to_string()));
                }
                None
            }
        }
    }

    /// The keys of the mapping at `path`, sound or not.
    pub(super) fn keys(&self, path: &[&str]) -> Vec<&str> {
        let at = path.iter().try_fold(&self.value, |value, key| value.get(key));
        let fields = at.and_then(Value::as_mapping);
        fields.into_iter().flatten().filter_map(|(key, _)| key.as_str()).collect()
    }

    /// Whether the value at `path` is `true`.
    pub(super) fn is_true(&self, path: &[&str]) -> bool {
        let at = path.iter().try_fold(&self.value, |value, key| value.get(key));
        at.and_then(Value::as_bool) == Some(true)
    }

    /// Where a path that is typed here leads: a relative one begins at the file's directory.
    pub(super) fn beside(&self, path: &str) -> PathBuf {
        FilePath::new(&self.file).parent().unwrap_or(FilePath::new("")).join(path)
    }

    /// Whether an error has been noted.
    pub(super) fn has_errors(&self) -> bool {
        self.faults.iter().any(|fault| fault.severity == Severity::Error)
    }

    /// Notes something about this document.
    pub(super) fn note(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Everything that was noted, in the order of the file.
    pub(super) fn into_diagnostics(self) -> Vec<Diagnostic> {
        let Self { file, shown, spans, faults, .. } = self;
        let mut diagnostics: Vec<_> = faults
            .into_iter()
            .map(|fault| {
                let mark =
                    if fault.on_key { spans.key(&fault.path) } else { spans.value(&fault.path) };
                Diagnostic {
                    severity: fault.severity,
                    message: fault.message,
                    file: file.clone(),
                    place: Some(place(&shown, mark)),
                    help: fault.help,
                }
            })
            .collect();
        diagnostics
            .sort_by_key(|found| found.place.as_ref().map(|place| (place.line, place.column)));
        diagnostics
    }
}

/// Takes the entry or field out of `value` that `steps` lead into.
fn prune(value: &mut Value, steps: &[Step], maps: &[&str]) {
    let Some(fields) = value.as_mapping_mut() else { return };
    match steps {
        [Step::Key(map), Step::Key(entry), ..] if maps.contains(&map.as_str()) => {
            if let Some(entries) = fields.get_mut(map.as_str()).and_then(Value::as_mapping_mut) {
                entries.shift_remove(entry.as_str());
            }
        }
        [Step::Key(field), ..] => {
            fields.shift_remove(field.as_str());
        }
        _ => {}
    }
}

/// The line of `text` that `mark` is in.
fn place(text: &str, mark: Mark) -> Place {
    let line = text.split('\n').nth(mark.line.saturating_sub(1)).unwrap_or_default();
    let line = line.strip_suffix('\r').unwrap_or(line);
    // A line is shown on a terminal; the rest of a long one says nothing.
    const SHOWN_MAX: usize = 200;
    Place {
        line: mark.line.max(1),
        column: mark.column,
        width: mark.width,
        text: line.chars().take(SHOWN_MAX.max(mark.column)).collect(),
    }
}

/// A line of a text that could not be parsed, so that it is not known where values end: whatever
/// comes after the name of a secret field, or of a URL with an `@`, is overwritten.
fn guarded(mut place: Place) -> Place {
    let url = URL_FIELDS.into_iter().filter(|_| place.text.contains('@'));
    let after_name = SECRET_FIELDS.into_iter().chain(url).filter_map(|name| {
        let at = place.text.find(name)?;
        let rest = place.text.get(at + name.len()..)?;
        let value = rest.trim_start_matches(['"', '\'', ' ', '\t', ':', '{']);
        (!value.starts_with("${")).then_some(place.text.len() - value.len())
    });
    if let Some(from) = after_name.min() {
        let (shown, hidden) = place.text.split_at(from);
        place.text = format!("{shown}{}", "*".repeat(hidden.chars().count()));
    }
    place
}

/// The text with every value that is a secret overwritten by as many asterisks.
fn masked(text: &str, spans: &Spans) -> String {
    let mut lines: Vec<Vec<char>> = text.split('\n').map(|line| line.chars().collect()).collect();
    for (path, mark, typed) in spans.scalars() {
        let tells = path.last_key().is_some_and(|key| is_telling(key, typed));
        let is_secret = (path.is_secret() && !typed.contains("${")) || tells;
        if is_secret && let Some(line) = lines.get_mut(mark.line.saturating_sub(1)) {
            let from = mark.column.saturating_sub(1);
            for character in
                line.iter_mut().skip(from).take(mark.width).filter(|c| !c.is_whitespace())
            {
                *character = '*';
            }
        }
    }
    let lines: Vec<String> = lines.into_iter().map(|line| line.into_iter().collect()).collect();
    lines.join("\n")
}
