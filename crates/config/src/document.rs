//! One YAML file on its way from bytes to typed values, and the faults found in it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path as FilePath, PathBuf};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_yaml::Value;

use super::diagnostic::{Diagnostic, Severity, SourceExcerpt};
use super::expand::{Env, Expansion, ExpansionError};
pub(super) use super::fault::Fault;
use super::spans::{DocumentPath, Mark, Spans, Step, SyntaxRefusal, WalkPath, syntax_help};
use super::{described, shape, shown};
use tollgate_types::printable::shortened;

/// The largest file that is read, in bytes: ten thousand models are about 3 MiB.
const FILE_BYTES_MAX: usize = 16 << 20;

/// Files from this length on are parsed by two threads; shorter ones are not worth a thread.
const PARALLEL_BYTES_MIN: usize = 64 * 1024;

/// Maximum number of listed problems per file, in the order of the file.
const DIAGNOSTICS_MAX: usize = 1_000;
/// The longest message or help, in characters: long enough for a list of upstreams that are switched off.
const MESSAGE_CHARS_MAX: usize = 4_000;

/// A file whose YAML is in order; its fields may not be.
#[derive(Debug)]
pub(super) struct Document {
    /// Path of the file as the operator gave it.
    file: String,
    text: String,
    /// The JSON Schema of the file.
    schema: serde_json::Value,
    spans: Spans,
    /// The values as typed, for showing and comparing.
    pub(super) described: described::RedactedConfig,
    value: Value,
    /// Variables and files that could not be filled in.
    pub(super) unfilled: Vec<ExpansionError>,
    faults: Vec<Fault>,
}

impl Document {
    /// Parses a file's bytes and fills in its values.
    ///
    /// # Errors
    /// Everything that keeps the text from being one plain YAML document.
    pub(super) fn parse(
        file: &str,
        bytes: &[u8],
        env: Env<'_>,
        schema: serde_json::Value,
    ) -> Result<Self, Vec<Diagnostic>> {
        let whole_file = |message: String| {
            let (file, severity) = (file.to_owned(), Severity::Error);
            vec![Diagnostic { severity, message, file, place: None, help: None }]
        };
        // Before anything is parsed: both parsers need memory many times the file's size.
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
        let (spans, value) = parse_twice(text);
        let spans = spans.map_err(|refusals| refused(file, text, refusals, &schema))?;
        let mut value: Value = value().map_err(|error| {
            let mut diagnostics = whole_file(format!("this is not YAML: {error}"));
            if let (Some(diagnostic), Some(at)) = (diagnostics.first_mut(), error.location()) {
                let mark = Mark { line: at.line(), column: at.column(), width: 1 };
                diagnostic.place = guarded(text, &[mark], &schema).pop();
                diagnostic.help = syntax_help(text, mark.line).map(str::to_owned);
            }
            diagnostics
        })?;
        // An empty file, or one of comments, has no field: missing ones are reported like in any other.
        if value.is_null() {
            value = Value::Mapping(serde_yaml::Mapping::new());
        }
        // Before expansion: the description shows what was typed, with no secret in it.
        let described = described::describe(&value, &schema);
        let directory = FilePath::new(file).parent().unwrap_or(FilePath::new(""));
        let (unfilled, faults) = (Vec::new(), Vec::new());
        let mut expansion = Expansion { env, directory, spans: &spans, unfilled, faults };
        expansion.fill(&mut value, &WalkPath::Root);
        let Expansion { unfilled, faults, .. } = expansion;
        let (file, text) = (file.to_owned(), text.to_owned());
        Ok(Self { file, text, schema, spans, described, value, unfilled, faults })
    }

    /// Checks the shape and reads the values. Faulty entries of the mappings named in `maps`, and other
    /// faulty top-level fields, are dropped, so that the rest can be checked further.
    pub(super) fn read<T: DeserializeOwned + JsonSchema>(&mut self, maps: &[&str]) -> Option<T> {
        let mut faults = shape::check(&self.value, &shape::schema_of::<T>(), &self.spans);
        // What could not be filled in has been said; that the bare `${X}` is no URL need not be.
        let unfilled = self.unfilled.iter().map(|unfilled| &unfilled.path);
        let at_fault: HashSet<&DocumentPath> =
            self.faults.iter().map(|fault| &fault.path).chain(unfilled).collect();
        faults.retain(|fault| !at_fault.contains(&fault.path));
        self.faults.append(&mut faults);

        // Without the faulty parts serde reads the rest, so that checks across fields run as well.
        // A sound file is read as it is: a copy of thousands of models, and the path to each of their values, would
        // serve nobody.
        if self.faults.is_empty()
            && self.unfilled.is_empty()
            && let Ok(read) = T::deserialize(&self.value)
        {
            return Some(read);
        }
        let mut sound = self.value.clone();
        let unfilled = self.unfilled.iter().map(|unfilled| &unfilled.path);
        prune(&mut sound, self.faults.iter().map(|fault| &fault.path).chain(unfilled), maps);
        match serde_path_to_error::deserialize(sound) {
            Ok(read) => Some(read),
            Err(error) => {
                let path = DocumentPath::from(error.path());
                // What serde says beside known faults follows from what was pruned.
                if self.faults.is_empty() {
                    self.faults.push(Fault::at_value(&path, error.into_inner().to_string()));
                }
                None
            }
        }
    }

    /// Moves a top-level field into its own document, with its notes; `None` if the field is missing.
    pub(super) fn split_off(&mut self, field: &str) -> Option<Self> {
        let taken = self.value.as_mapping_mut()?.shift_remove(field)?;
        let is_inside = |path: &DocumentPath| matches!(path.steps().first(), Some(Step::Key(first)) if first == field);
        let (unfilled, kept) = std::mem::take(&mut self.unfilled)
            .into_iter()
            .partition(|unfilled| is_inside(&unfilled.path));
        self.unfilled = kept;
        let (faults, kept) =
            std::mem::take(&mut self.faults).into_iter().partition(|fault| is_inside(&fault.path));
        self.faults = kept;
        let mut value = serde_yaml::Mapping::new();
        value.insert(Value::from(field), taken);
        Some(Self {
            file: self.file.clone(),
            text: self.text.clone(),
            schema: self.schema.clone(),
            spans: self.spans.clone(),
            described: described::RedactedConfig::default(),
            value: Value::Mapping(value),
            unfilled,
            faults,
        })
    }

    /// The values at these paths as a document of their own, with their findings. A value that blocks a path,
    /// such as a text instead of a mapping, is kept.
    pub(super) fn part(&self, paths: &[&[&str]]) -> Self {
        let mut part = serde_yaml::Mapping::new();
        for path in paths {
            graft(&self.value, &mut part, path);
        }
        let is_part = |path: &DocumentPath| paths.iter().any(|target| path.meets(target));
        let unfilled = self.unfilled.iter().filter(|one| is_part(&one.path)).cloned().collect();
        let faults = self.faults.iter().filter(|one| is_part(&one.path)).cloned().collect();
        Self {
            file: self.file.clone(),
            text: self.text.clone(),
            schema: self.schema.clone(),
            spans: self.spans.clone(),
            described: described::RedactedConfig::default(),
            value: Value::Mapping(part),
            unfilled,
            faults,
        }
    }

    /// Faults of the keys beside those at the ends of these paths.
    pub(super) fn faults_beside<T: JsonSchema>(&self, paths: &[&[&str]]) -> Vec<Fault> {
        let mut faults = shape::check(&self.value, &shape::schema_of::<T>(), &self.spans);
        let is_beside = |path: &DocumentPath| {
            let is_sibling = |target: &&[&str]| {
                let above = target.split_last().map(|(_, above)| above);
                path.parent().is_some_and(|parent| above.is_some_and(|above| parent.is_at(above)))
            };
            paths.iter().any(is_sibling) && !paths.iter().any(|target| path.meets(target))
        };
        faults.retain(|fault| fault.on_key && is_beside(&fault.path));
        faults
    }

    /// Notes every variable and file that is missing as an error.
    pub(super) fn note_unfilled(&mut self) {
        for ExpansionError { path, reason, help } in std::mem::take(&mut self.unfilled) {
            self.note(Fault::at_value(&path, reason).help(help));
        }
    }

    /// Adds a warning for every missing variable and file: the values that need them are omitted when the
    /// document is read.
    pub(super) fn leave_unfilled_out(&mut self) {
        let unfilled = self.unfilled.iter();
        let noted: Vec<Fault> = unfilled
            .map(|ExpansionError { path, reason, help }| {
                let entry = match path.steps() {
                    [Step::Key(_), Step::Key(entry), ..] => entry.as_str(),
                    _ => "this",
                };
                let message = format!("`{entry}` is left out: {reason}");
                Fault::at_value(path, message).warning().help(help.clone())
            })
            .collect();
        self.faults.extend(noted);
    }

    /// True if the document has this top-level field.
    pub(super) fn has_field(&self, field: &str) -> bool {
        self.value.get(field).is_some()
    }

    /// The keys of the mapping at `path`, sound or not.
    pub(super) fn keys(&self, path: &[&str]) -> Vec<&str> {
        let at = path.iter().try_fold(&self.value, |value, key| value.get(key));
        let fields = at.and_then(Value::as_mapping);
        fields.into_iter().flatten().filter_map(|(key, _)| key.as_str()).collect()
    }

    /// True if the value at `path` is `true`.
    pub(super) fn is_true(&self, path: &[&str]) -> bool {
        let at = path.iter().try_fold(&self.value, |value, key| value.get(key));
        at.and_then(Value::as_bool) == Some(true)
    }

    /// Resolves a path of the file: relative paths begin at the file's directory.
    pub(super) fn beside(&self, path: &str) -> PathBuf {
        FilePath::new(&self.file).parent().unwrap_or(FilePath::new("")).join(path)
    }

    /// True after an error has been noted.
    pub(super) fn has_errors(&self) -> bool {
        self.faults.iter().any(|fault| fault.severity == Severity::Error)
    }

    /// Adds a finding about this document.
    pub(super) fn note(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// All findings, in the order of the file.
    pub(super) fn into_diagnostics(self) -> Vec<Diagnostic> {
        let Self { file, text, schema, spans, faults, .. } = self;
        let mark = |fault: &Fault| {
            if fault.on_key { spans.key(&fault.path) } else { spans.value(&fault.path) }
        };
        let quoted: BTreeSet<usize> = faults.iter().map(|fault| mark(fault).line).collect();
        if quoted.is_empty() {
            return Vec::new();
        }
        let lines = shown::lines(&text, &spans, &schema, &quoted);
        let mut faults: Vec<_> = faults.into_iter().map(|fault| (mark(&fault), fault)).collect();
        faults.sort_by_key(|(mark, _)| (mark.line, mark.column));
        // A generated file can have one fault in each of ten thousand models.
        let left_out = faults.split_off(faults.len().min(DIAGNOSTICS_MAX));
        let mut diagnostics: Vec<_> = faults
            .into_iter()
            .map(|(mark, fault)| {
                let line = lines.get(&mark.line).map(Vec::as_slice).unwrap_or_default();
                Diagnostic {
                    severity: fault.severity,
                    message: shortened(&fault.message, MESSAGE_CHARS_MAX).into_owned(),
                    file: file.clone(),
                    place: Some(SourceExcerpt::around(line, mark.line, mark.column, mark.width)),
                    help: fault.help.map(|help| shortened(&help, MESSAGE_CHARS_MAX).into_owned()),
                }
            })
            .collect();
        diagnostics.extend(more(file, left_out.iter().map(|(_, fault)| fault.severity)));
        diagnostics
    }
}

/// The places of a text's values, and its values. Values are parsed when they are called for, or, for a long text,
/// at the same time as the places: a start waits for both.
fn parse_twice(
    text: &str,
) -> (Result<Spans, Vec<SyntaxRefusal>>, impl FnOnce() -> serde_yaml::Result<Value>) {
    let parse = || serde_yaml::from_str(text);
    // An alias repeats what an anchor names: without one, the values are no larger than their text, even where
    // `Spans` refuses the file.
    let is_parallel = text.len() >= PARALLEL_BYTES_MIN && !text.contains('&');
    let (spans, value) = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("yaml".to_owned());
        let value = is_parallel.then(|| thread.spawn_scoped(scope, parse));
        // Where no thread can be had, the caller's does both.
        let value = value.and_then(Result::ok);
        (Spans::parse(text), value.and_then(|value| value.join().ok()))
    });
    (spans, move || value.unwrap_or_else(parse))
}

/// Copies the value at `path` in `from` to the same path in `to`.
fn graft(from: &Value, to: &mut serde_yaml::Mapping, path: &[&str]) {
    let Some((key, rest)) = path.split_first() else { return };
    let Some(found) = from.get(*key) else { return };
    if rest.is_empty() || !found.is_mapping() {
        to.insert(Value::from(*key), found.clone());
        return;
    }
    let inner = to.entry(Value::from(*key)).or_insert_with(|| serde_yaml::Mapping::new().into());
    if let Some(inner) = inner.as_mapping_mut() {
        graft(found, inner, rest);
    }
}

/// The diagnostic that counts unlisted problems.
fn more(file: String, severities: impl Iterator<Item = Severity>) -> Option<Diagnostic> {
    let severities: Vec<Severity> = severities.collect();
    let errors = severities.iter().filter(|severity| **severity == Severity::Error).count();
    let severity = if errors > 0 { Severity::Error } else { Severity::Warning };
    let message =
        format!("{} more problems in this file, {errors} of them errors", severities.len());
    let help = Some("mend what is listed first".to_owned());
    (!severities.is_empty()).then_some(Diagnostic { severity, message, file, place: None, help })
}

/// Moves the entries and fields at the paths out of `value`.
fn prune<'a>(value: &mut Value, paths: impl Iterator<Item = &'a DocumentPath>, maps: &[&str]) {
    let Some(fields) = value.as_mapping_mut() else { return };
    let (mut entries, mut whole) = (HashMap::<&str, HashSet<&str>>::new(), HashSet::new());
    for path in paths {
        match path.steps() {
            [Step::Key(map), Step::Key(entry), ..] if maps.contains(&map.as_str()) => {
                entries.entry(map.as_str()).or_default().insert(entry.as_str());
            }
            [Step::Key(field), ..] => {
                whole.insert(field.as_str());
            }
            _ => {}
        }
    }
    // In one pass each: a file may have as many entries at fault as it has entries.
    let is_in =
        |names: &HashSet<&str>, key: &Value| key.as_str().is_some_and(|key| names.contains(key));
    for (map, names) in entries {
        if let Some(entries) = fields.get_mut(map).and_then(Value::as_mapping_mut) {
            entries.retain(|key, _| !is_in(&names, key));
        }
    }
    fields.retain(|key, _| !is_in(&whole, key));
}

/// Reason why a text cannot be read.
fn refused(
    file: &str,
    text: &str,
    refusals: Vec<SyntaxRefusal>,
    schema: &serde_json::Value,
) -> Vec<Diagnostic> {
    let marks: Vec<Mark> = refusals.iter().map(|refusal| refusal.mark).collect();
    let places = guarded(text, &marks, schema).into_iter();
    let mut diagnostics: Vec<_> = refusals
        .into_iter()
        .zip(places)
        .map(|(refusal, place)| Diagnostic {
            severity: Severity::Error,
            message: refusal.message,
            file: file.to_owned(),
            place: Some(place),
            help: refusal.help.map(str::to_owned),
        })
        .collect();
    diagnostics.dedup();
    diagnostics
}

/// Excerpts at these marks of a text that could not be parsed, in one pass.
fn guarded(text: &str, marks: &[Mark], schema: &serde_json::Value) -> Vec<SourceExcerpt> {
    let lines: HashSet<usize> = marks.iter().map(|mark| mark.line.max(1)).collect();
    let numbered = (1_usize..).zip(text.split('\n')).filter(|(number, _)| lines.contains(number));
    let lines: HashMap<usize, Vec<char>> =
        numbered.map(|(number, line)| (number, shown::guarded(line, schema))).collect();
    let place = |mark: &Mark| {
        let line = lines.get(&mark.line.max(1)).map(Vec::as_slice).unwrap_or_default();
        SourceExcerpt::around(line, mark.line, mark.column, mark.width)
    };
    marks.iter().map(place).collect()
}
