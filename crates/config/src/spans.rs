//! Positions in a YAML file.
//!
//! `serde_yaml` forgets positions as soon as it has a value, and lets some things through that an
//! operator should hear about. This second parse of the same text keeps the position and the text
//! of every value by its [`DocumentPath`], and refuses duplicate keys, anchors, tags and merge keys.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use foldhash::fast::RandomState;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// Path from the root of a document to a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct DocumentPath(Vec<Step>);

/// One step of a [`DocumentPath`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// Into a mapping, to the value of this key.
    Key(KeyName),
    /// Into a sequence, from 0.
    Index(usize),
}

/// A key of a mapping. Every value below it has it in its path, so it is shared, and hashed once.
#[derive(Clone, Debug)]
pub(super) struct KeyName {
    text: Arc<str>,
    hash: u64,
}

impl KeyName {
    fn new(text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self { text: text.into(), hash: hasher.finish() }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for KeyName {
    fn eq(&self, other: &Self) -> bool {
        // The hash first: nearly all comparisons are of different keys.
        self.hash == other.hash && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
    }
}

impl Eq for KeyName {}

impl Hash for KeyName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialEq<str> for KeyName {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl DocumentPath {
    /// The path of the document itself, without any step.
    pub(super) fn root() -> Self {
        Self::default()
    }

    /// The value of `key` in this mapping.
    pub(super) fn key(&self, key: &str) -> Self {
        self.then(Step::Key(KeyName::new(key)))
    }

    /// The item at `index` of this sequence.
    pub(super) fn index(&self, index: usize) -> Self {
        self.then(Step::Index(index))
    }

    fn then(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// The steps from the root.
    pub(super) fn steps(&self) -> &[Step] {
        &self.0
    }

    /// The steps from the root as those of a walk.
    pub(super) fn walk_steps(&self) -> Vec<WalkStep<'_>> {
        let step = |step| match step {
            &Step::Index(index) => WalkStep::Index(index),
            Step::Key(key) => WalkStep::Key(key.as_str()),
        };
        self.0.iter().map(step).collect()
    }

    /// True for the path of these keys.
    pub(super) fn is_at(&self, keys: &[&str]) -> bool {
        self.0.len() == keys.len() && self.meets(keys)
    }

    /// True if this path and the path of these keys contain one another.
    pub(super) fn meets(&self, keys: &[&str]) -> bool {
        let mut pairs = self.0.iter().zip(keys);
        pairs.all(|(step, key)| matches!(step, Step::Key(name) if name == *key))
    }

    /// Path of the enclosing value; `None` for the document itself.
    pub(super) fn parent(&self) -> Option<Self> {
        let (_, above) = self.0.split_last()?;
        Some(Self(above.to_vec()))
    }
}

/// Path of a value during a walk through a document: it stays on the stack, and costs nothing where no fault is
/// found.
#[derive(Clone, Copy, Debug)]
pub(super) enum WalkPath<'a> {
    /// The document as a whole.
    Root,
    /// The value of a key in a mapping.
    Key(&'a WalkPath<'a>, &'a str),
    /// An item of a sequence.
    Index(&'a WalkPath<'a>, usize),
}

/// One step of a [`WalkPath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WalkStep<'a> {
    /// Into a mapping, to the value of this key.
    Key(&'a str),
    /// Into a sequence, from 0.
    Index(usize),
}

impl<'a> WalkPath<'a> {
    /// The value of `key` in this mapping.
    pub(super) fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }

    /// The item at `index` of this sequence.
    pub(super) fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }

    /// The steps from the root.
    pub(super) fn steps(&self) -> Vec<WalkStep<'a>> {
        let (mut steps, mut at) = (Vec::with_capacity(8), *self);
        loop {
            let above = match at {
                Self::Root => break,
                Self::Key(above, key) => {
                    steps.push(WalkStep::Key(key));
                    above
                }
                Self::Index(above, index) => {
                    steps.push(WalkStep::Index(index));
                    above
                }
            };
            at = *above;
        }
        steps.reverse();
        steps
    }

    /// The same path for a fault, or for a look at the file.
    pub(super) fn to_path(self) -> DocumentPath {
        let step = |step| match step {
            WalkStep::Key(key) => Step::Key(KeyName::new(key)),
            WalkStep::Index(index) => Step::Index(index),
        };
        DocumentPath(self.steps().into_iter().map(step).collect())
    }
}

impl From<&serde_path_to_error::Path> for DocumentPath {
    fn from(path: &serde_path_to_error::Path) -> Self {
        use serde_path_to_error::Segment;
        let step = |segment: &Segment| match segment {
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Map { key } => Some(Step::Key(KeyName::new(key))),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        Self(path.iter().filter_map(step).collect())
    }
}

impl fmt::Display for DocumentPath {
    /// Writes the path as operators read it, such as `upstreams.openai.timeouts` or
    /// `listeners[0].address`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if depth == 0 => f.write_str(key.as_str())?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// A range of text on one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// The line in the file, from 1.
    pub(super) line: usize,
    /// Column in characters, from 1.
    pub(super) column: usize,
    /// Characters, at least 1; what goes on in further lines is not counted.
    pub(super) width: usize,
}

impl Mark {
    fn new(span: Span) -> Self {
        // A mark underlines text of one line; of a block only its beginning.
        let one_line = span.start.line() == span.end.line();
        let width = if one_line { span.end.col().saturating_sub(span.start.col()) } else { 1 };
        Self {
            line: span.start.line().max(1),
            column: span.start.col().saturating_add(1),
            width: width.max(1),
        }
    }
}

/// A value's key and text.
#[derive(Clone, Debug)]
struct Spot {
    key: Option<Mark>,
    value: Mark,
    /// End: line, from 1, and column, from 0.
    end: LineColumn,
    /// Text as typed, without quotes; `None` for mappings and sequences.
    text: Option<String>,
}

/// A line, from 1, and a column in characters, from 0.
pub(super) type LineColumn = (usize, usize);

/// A value that is neither a mapping nor a sequence.
pub(super) struct ScalarNode<'a> {
    pub(super) path: &'a DocumentPath,
    pub(super) key: Option<Mark>,
    /// Position of the first character.
    pub(super) from: LineColumn,
    /// Position after the last character.
    pub(super) to: LineColumn,
    /// Text as typed, without quotes.
    pub(super) text: &'a str,
}

/// An unsupported YAML construct.
#[derive(Clone, Debug)]
pub(super) struct SyntaxRefusal {
    pub(super) mark: Mark,
    pub(super) message: String,
    pub(super) help: Option<&'static str>,
}

/// The position and text of every value.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans(HashMap<DocumentPath, Spot, RandomState>);

impl Spans {
    /// Finds every value of `text`, or everything that is refused in it. After a syntax error there
    /// is nothing more to find.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<SyntaxRefusal>> {
        let mut finder = Finder::default();
        for event in Parser::new_from_str(text) {
            match event {
                Ok((event, span)) => finder.take(&event, span),
                // The parser cannot resume behind a syntax error.
                Err(error) => {
                    finder.syntax_error(&error, text);
                    break;
                }
            }
            // Checked while events arrive: a hostile file is given up before it has filled the memory.
            if finder.open.len() > DEPTH_MAX {
                finder.refuse(Mark::default(), "nested too deeply".to_owned(), None);
                break;
            }
            if finder.spans.0.len() > VALUES_MAX {
                let message = format!("this file has more than {VALUES_MAX} values");
                finder.refuse(Mark::default(), message, None);
                break;
            }
            if finder.refused.len() > REFUSED_MAX {
                let message = "there is more that is not read here".to_owned();
                finder.refuse(Mark::default(), message, Some("mend what is named first"));
                break;
            }
        }
        if finder.refused.is_empty() { Ok(finder.spans) } else { Err(finder.refused) }
    }

    /// Position of the value at `path`, or of the nearest enclosing value.
    pub(super) fn value(&self, path: &DocumentPath) -> Mark {
        self.nearest(path, |spot| spot.value)
    }

    /// Position of the key of the value at `path`; of the value if it has no key.
    pub(super) fn key(&self, path: &DocumentPath) -> Mark {
        self.nearest(path, |spot| spot.key.unwrap_or(spot.value))
    }

    /// The text of the scalar at `path` as it was typed, without quotes.
    pub(super) fn text(&self, path: &DocumentPath) -> Option<&str> {
        self.0.get(path)?.text.as_deref()
    }

    /// Every scalar of the document, in the order of the file.
    pub(super) fn scalars(&self) -> impl Iterator<Item = ScalarNode<'_>> {
        self.0.iter().filter_map(|(path, spot)| {
            let text = spot.text.as_deref()?;
            let from = (spot.value.line, spot.value.column.saturating_sub(1));
            Some(ScalarNode { path, key: spot.key, from, to: spot.end, text })
        })
    }

    fn nearest(&self, path: &DocumentPath, mark: impl Fn(&Spot) -> Mark) -> Mark {
        let mut at = Some(path.clone());
        while let Some(path) = at {
            if let Some(spot) = self.0.get(&path) {
                return mark(spot);
            }
            at = path.parent();
        }
        Mark { line: 1, column: 1, width: 1 }
    }
}

/// True if a field's URL contains more than a location, such as a password, which is refused later.
pub(super) fn is_telling(field: &str, text: &str) -> bool {
    let user = text.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
    match field {
        "base_url" => text.contains(['@', '?']),
        // A user's name alone is no secret.
        "url" => text.contains('?') || user.is_some_and(|(user, _)| user.contains(':')),
        _ => false,
    }
}

/// Deeper than any field is, and shallow enough for every recursion over a document.
const DEPTH_MAX: usize = 32;

/// The most values in a file: ten thousand models have less than half of them. Each takes some hundred
/// bytes beside the file.
const VALUES_MAX: usize = 500_000;
/// The longest key, in bytes. Names are shorter by far, and every value below it has it in its path.
const KEY_BYTES_MAX: usize = 512;
/// Maximum length of a quoted refused text.
const REFUSED_MAX: usize = 100;

/// Builds [`Spans`] out of the parser's events.
#[derive(Default)]
struct Finder {
    spans: Spans,
    refused: Vec<SyntaxRefusal>,
    open: Vec<Open>,
    documents: usize,
}

/// A mapping or sequence whose end was not reached yet.
enum Open {
    Mapping {
        path: DocumentPath,
        key: Option<(KeyName, Mark)>,
        seen: HashSet<KeyName, RandomState>,
    },
    Sequence {
        path: DocumentPath,
        next: usize,
    },
}

impl Finder {
    fn take(&mut self, event: &Event<'_>, span: Span) {
        let mark = Mark::new(span);
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                // Reported once, however many documents follow.
                if self.documents == 2 {
                    let help = "keep one document; remove this one and its `---`";
                    self.refuse(mark, "a second document in one file".to_owned(), Some(help));
                }
            }
            Event::Alias(_) => {
                self.refuse_anchor(mark);
                let (path, spot) = self.spot(span, None);
                self.spans.0.insert(path, spot);
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_decorations(mark, *anchor, tag.is_some());
                if !self.takes_as_key(text, *style, mark) {
                    let (path, spot) = self.spot(span, Some(text.clone().into_owned()));
                    self.spans.0.insert(path, spot);
                }
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_decorations(mark, *anchor, tag.is_some());
                let path = self.container(span);
                self.open.push(Open::Mapping { path, key: None, seen: HashSet::default() });
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_decorations(mark, *anchor, tag.is_some());
                let path = self.container(span);
                self.open.push(Open::Sequence { path, next: 0 });
            }
            Event::MappingEnd | Event::SequenceEnd => {
                self.open.pop();
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
    }

    /// Takes a scalar as a key, if a key is expected.
    fn takes_as_key(&mut self, text: &str, style: ScalarStyle, mark: Mark) -> bool {
        let Some(Open::Mapping { key: key @ None, seen, .. }) = self.open.last_mut() else {
            return false;
        };
        if text.len() > KEY_BYTES_MAX {
            *key = Some((KeyName::new(""), mark));
            let message = format!("a key of more than {KEY_BYTES_MAX} bytes");
            self.refuse(mark, message, Some("keys are the names of fields, models and upstreams"));
            return true;
        }
        // `serde_yaml` refuses equal keys too, but that would be shown as malformed YAML, without advice.
        let name = KeyName::new(text);
        let is_new = seen.insert(name.clone());
        *key = Some((name, mark));
        if style == ScalarStyle::Plain && text == "<<" {
            let help = "write the fields out where they are used";
            self.refuse(mark, "merge keys are not read here".to_owned(), Some(help));
        // `true`, `1.0` or `null` as the name of a model would be a boolean, a number or nothing to YAML.
        } else if style == ScalarStyle::Plain && !is_text(text) {
            let message = format!("the key `{text}` is not text to YAML");
            self.refuse(mark, message, Some("put it in quotes"));
        } else if !is_new {
            let help = "remove one of the two, or rename it";
            self.refuse(mark, format!("`{text}` is here twice"), Some(help));
        }
        true
    }

    /// Notes a mapping or a sequence, and returns its path.
    fn container(&mut self, span: Span) -> DocumentPath {
        let (path, spot) = self.spot(span, None);
        self.spans.0.insert(path.clone(), spot);
        path
    }

    /// The path and the place of the value that begins here.
    fn spot(&mut self, span: Span, text: Option<String>) -> (DocumentPath, Spot) {
        let mark = Mark::new(span);
        let end = (span.end.line().max(1), span.end.col());
        let (path, key) = match self.open.last_mut() {
            None => (DocumentPath::root(), None),
            Some(Open::Sequence { path, next }) => {
                let path = path.index(*next);
                *next += 1;
                (path, None)
            }
            Some(Open::Mapping { path, key, .. }) => match key.take() {
                Some((key, key_mark)) => (path.then(Step::Key(key)), Some(key_mark)),
                None => {
                    // A mapping or sequence stands where a key is expected.
                    let path = path.key("");
                    *key = Some((KeyName::new(""), mark));
                    self.refuse(mark, "a key must be plain text".to_owned(), None);
                    (path, None)
                }
            },
        };
        (path, Spot { key, value: mark, end, text })
    }

    fn refuse_decorations(&mut self, mark: Mark, anchor: usize, tagged: bool) {
        if anchor > 0 {
            self.refuse_anchor(mark);
        }
        if tagged {
            let help = "remove the tag; types follow from the fields";
            self.refuse(mark, "tags such as `!x` are not read here".to_owned(), Some(help));
        }
    }

    fn refuse_anchor(&mut self, mark: Mark) {
        let message = "anchors (`&x`) and aliases (`*x`) are not read here".to_owned();
        self.refuse(mark, message, Some("write the value out where it is used"));
    }

    fn syntax_error(&mut self, error: &saphyr_parser::ScanError, text: &str) {
        let at = error.marker();
        let mark = Mark { line: at.line().max(1), column: at.col().saturating_add(1), width: 1 };
        let help = syntax_help(text, mark.line);
        self.refuse(mark, format!("this is not YAML: {}", error.info()), help);
    }

    fn refuse(&mut self, mark: Mark, message: String, help: Option<&'static str>) {
        self.refused.push(SyntaxRefusal { mark, message, help });
    }
}

/// Help for a probable cause of a syntax error in a line.
pub(super) fn syntax_help(text: &str, line: usize) -> Option<&'static str> {
    let line = text.lines().nth(line.saturating_sub(1))?;
    let content = line.trim_start();
    let value = content.split_once(": ").map_or(content, |(_, value)| value).trim_start();
    let indentation = line.strip_suffix(content).unwrap_or_default();
    if indentation.contains('\t') {
        Some("indent with spaces; YAML does not take tabs there")
    } else if line.contains("${") && line.contains(['[', ',']) {
        Some("inside `{ }` and `[ ]`, put `\"${VAR}\"` in quotes")
    } else if value.starts_with(['*', '&', '%', '@', '`']) {
        Some("text that begins with this character must be in quotes")
    } else {
        None
    }
}

/// Length of the longest word that is no text to YAML: `false`.
const WORD_BYTES_MAX: usize = 5;

/// True if YAML reads an unquoted scalar as text, and not as a number, a boolean or null.
fn is_text(text: &str) -> bool {
    // Nearly all keys are plain names, and a parser for each of them was a fifth of loading 2,000 models: numbers
    // begin with a digit, a sign or a point, and none of these characters is syntax.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    let is_name = text.len() > WORD_BYTES_MAX
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(is_plain);
    is_name || is_text_to_yaml(text)
}

fn is_text_to_yaml(text: &str) -> bool {
    matches!(serde_yaml::from_str(text), Ok(serde_yaml::Value::String(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusals(text: &str) -> Vec<(usize, usize, String)> {
        let refused = Spans::parse(text).err().unwrap_or_default();
        refused.into_iter().map(|r| (r.mark.line, r.mark.column, r.message)).collect()
    }

    #[test]
    fn names_are_text_exactly_when_yaml_reads_them_so() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let pieces =
            ["true", "false", "null", "inf", "nan", "infinity", "e", "E5", "0x", "1", ".", "-"]
                .into_iter()
                .chain(["_", "/", "a", "Z", "9", "yes", "~", ":", "#", " ", "é", "operations"]);
        let pieces: Vec<&str> = pieces.collect();
        for _ in 0..20_000 {
            let length = random.usize(1..6);
            let text: String = (0..length).map(|_| pieces[random.usize(..pieces.len())]).collect();
            assert_eq!(is_text(&text), is_text_to_yaml(&text), "{text:?}, seed {seed}");
        }
    }

    #[test]
    fn every_value_has_its_place() {
        let text = "# ünïcödé\na:\n  - {b: 0.10, 'c d': \"é\"}\n";
        let spans = Spans::parse(text).expect("valid YAML");
        let item = DocumentPath::root().key("a").index(0);
        assert_eq!(spans.text(&item.key("b")), Some("0.10"), "the text that was typed");
        assert_eq!(spans.value(&item.key("b")), Mark { line: 3, column: 9, width: 4 });
        assert_eq!(spans.key(&item.key("c d")), Mark { line: 3, column: 15, width: 5 });
        assert_eq!(spans.value(&item.key("c d")), Mark { line: 3, column: 22, width: 3 });
        assert_eq!(spans.key(&item.key("missing").key("deeper")), spans.value(&item), "nearest");
    }

    #[test]
    fn what_is_refused_is_refused_all_at_once() {
        let text = "a: 1\nb: &x {c: 2, c: 3}\na: *x\n<<: {}\n8: !t 1\n";
        let found = refusals(text);
        let lines: Vec<_> = found.iter().map(|(line, ..)| *line).collect();
        assert_eq!(lines, [2, 2, 3, 3, 4, 5, 5], "one refusal each: {found:#?}");
    }

    #[test]
    fn a_tab_is_a_located_error() {
        let found = refusals("a:\n\tb: 1\n");
        assert_eq!(found.first().map(|(line, ..)| *line), Some(2), "{found:?}");
    }
}
