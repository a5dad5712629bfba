//! YAML of others, kept as it was typed: every value with its text and its place.
//!
//! What [`Spans`](crate::spans) refuses in our own files is read here: anchors, aliases and
//! merge keys are common in files of this kind.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Parser, ScalarStyle};

use crate::spans::Mark;

/// The most values of a document, aliases followed: a file that means more is no configuration.
const NODES_MAX: usize = 200_000;
/// Deeper than any field is, and shallow enough for every recursion over a document.
const DEPTH_MAX: usize = 32;

/// A YAML value with its position.
#[derive(Clone, Debug)]
pub(super) struct YamlNode {
    pub(super) mark: Mark,
    pub(super) value: YamlValue,
}

/// The value of a node.
#[derive(Clone, Debug)]
pub(super) enum YamlValue {
    /// `null`, or nothing at all.
    Nothing,
    /// A scalar as it was typed, without quotes.
    Text(String),
    /// A sequence, in its order.
    List(Vec<YamlNode>),
    /// A mapping, in the order of the file.
    Fields(Vec<MappingField>),
}

/// A key of a mapping, where it is, and its value.
#[derive(Clone, Debug)]
pub(super) struct MappingField {
    pub(super) key: String,
    pub(super) mark: Mark,
    pub(super) node: YamlNode,
}

impl YamlNode {
    /// The value of a field; `None` where it is not there, or holds nothing.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let field = self.fields().iter().find(|field| field.key == key)?;
        Some(&field.node).filter(|node| !matches!(node.value, YamlValue::Nothing))
    }

    /// The text of a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            YamlValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The text of a field.
    pub(super) fn text_of(&self, key: &str) -> Option<&str> {
        self.get(key)?.text()
    }

    /// The fields of a mapping; none for anything else.
    pub(super) fn fields(&self) -> &[MappingField] {
        match &self.value {
            YamlValue::Fields(fields) => fields,
            _ => &[],
        }
    }

    /// The items of a sequence; none for anything else.
    pub(super) fn items(&self) -> &[Self] {
        match &self.value {
            YamlValue::List(items) => items,
            _ => &[],
        }
    }

    fn count(&self) -> usize {
        1 + self.items().iter().map(Self::count).sum::<usize>()
            + self.fields().iter().map(|field| field.node.count()).sum::<usize>()
    }
}

/// A text that cannot be read, with the reason.
#[derive(Debug)]
pub(super) struct TreeError {
    pub(super) mark: Mark,
    pub(super) message: String,
}

/// Reads the first document of a text.
///
/// # Errors
/// What keeps the text from being YAML.
pub(super) fn parse(text: &str) -> Result<YamlNode, TreeError> {
    let mut builder = TreeBuilder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let at = error.marker();
            let mark = Mark { line: at.line().max(1), column: at.col() + 1, width: 1 };
            TreeError { mark, message: format!("this is not YAML: {}", error.info()) }
        })?;
        let mark = Mark {
            line: span.start.line().max(1),
            column: span.start.col() + 1,
            width: if span.start.line() == span.end.line() {
                span.end.col().saturating_sub(span.start.col()).max(1)
            } else {
                1
            },
        };
        let is_last = matches!(event, Event::DocumentEnd);
        builder.take(event, mark).map_err(|message| TreeError { mark, message })?;
        if is_last {
            break;
        }
    }
    let nothing =
        YamlNode { mark: Mark { line: 1, column: 1, width: 1 }, value: YamlValue::Nothing };
    Ok(builder.root.unwrap_or(nothing))
}

/// Builds the tree out of the parser's events.
#[derive(Default)]
struct TreeBuilder {
    root: Option<YamlNode>,
    open: Vec<OpenNode>,
    anchors: HashMap<usize, YamlNode>,
    nodes: usize,
}

/// A mapping or sequence whose end was not reached yet.
struct OpenNode {
    anchor: usize,
    node: YamlNode,
    key: Option<(String, Mark)>,
}

impl TreeBuilder {
    fn take(&mut self, event: Event<'_>, mark: Mark) -> Result<(), String> {
        let (value, anchor) = match event {
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err("an alias of something that is not there".to_owned());
                };
                // The place is that of the use: it is what a person has to change.
                return self.place(YamlNode { mark, ..node });
            }
            Event::Scalar(text, style, anchor, _) => {
                let is_plain = style == ScalarStyle::Plain;
                let is_nothing = is_plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let text = text.into_owned();
                (if is_nothing { YamlValue::Nothing } else { YamlValue::Text(text) }, anchor)
            }
            Event::MappingStart(anchor, _) => {
                return self.open(anchor, YamlNode { mark, value: YamlValue::Fields(Vec::new()) });
            }
            Event::SequenceStart(anchor, _) => {
                return self.open(anchor, YamlNode { mark, value: YamlValue::List(Vec::new()) });
            }
            Event::MappingEnd | Event::SequenceEnd => {
                let Some(mut closed) = self.open.pop() else { return Ok(()) };
                if let YamlValue::Fields(fields) = &mut closed.node.value {
                    merge(fields);
                }
                // Known only once it is closed, so a value cannot contain itself.
                if closed.anchor > 0 {
                    self.anchors.insert(closed.anchor, closed.node.clone());
                }
                return self.place(closed.node);
            }
            _ => return Ok(()),
        };
        let node = YamlNode { mark, value };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        self.place(node)
    }

    fn open(&mut self, anchor: usize, node: YamlNode) -> Result<(), String> {
        if self.open.len() == DEPTH_MAX {
            return Err("nested too deeply".to_owned());
        }
        self.open.push(OpenNode { anchor, node, key: None });
        Ok(())
    }

    /// Adds a value to its parent: as a key, a field's value, an item, or the document itself.
    fn place(&mut self, node: YamlNode) -> Result<(), String> {
        // By what aliases expand to: a few lines of them can stand for billions of values.
        self.nodes += node.count();
        if self.nodes > NODES_MAX {
            return Err(format!("this file means more than {NODES_MAX} values"));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match (&mut open.node.value, open.key.take()) {
            (YamlValue::Fields(fields), Some((key, mark))) => {
                fields.push(MappingField { key, mark, node })
            }
            (YamlValue::Fields(_), None) => {
                let text = node.text().unwrap_or_default().to_owned();
                open.key = Some((text, node.mark));
            }
            (YamlValue::List(items), _) => items.push(node),
            _ => {}
        }
        Ok(())
    }
}

/// Adds the fields that merge keys name and that are not there themselves.
fn merge(fields: &mut Vec<MappingField>) {
    if fields.iter().all(|field| field.key != "<<") {
        return;
    }
    let (merged, mut own): (Vec<MappingField>, Vec<MappingField>) =
        std::mem::take(fields).into_iter().partition(|field| field.key == "<<");
    // A key of the mapping itself wins over merged ones, and an earlier source over a later one (YAML merge type).
    let mut keys: HashSet<String> = own.iter().map(|field| field.key.clone()).collect();
    for MappingField { node, .. } in &merged {
        let sources: &[YamlNode] = match &node.value {
            YamlValue::List(items) => items,
            _ => std::slice::from_ref(node),
        };
        for field in sources.iter().flat_map(YamlNode::fields).filter(|field| field.key != "<<") {
            if keys.insert(field.key.clone()) {
                own.push(field.clone());
            }
        }
    }
    *fields = own;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_as_it_was_typed() {
        let root = parse("a: 0.00000015\nb: ['1e-7', ~]\n").expect("YAML");
        assert_eq!(root.text_of("a"), Some("0.00000015"), "no float");
        let b = root.get("b").expect("a list");
        assert_eq!(b.items()[0].text(), Some("1e-7"));
        assert!(matches!(b.items()[1].value, YamlValue::Nothing));
        assert_eq!(b.mark, Mark { line: 2, column: 4, width: 1 });
    }

    #[test]
    fn anchors_and_merge_keys_are_followed() {
        let text = "base: &base {x: 1, y: 2}\nmore:\n  <<: *base\n  y: 3\nsame: *base\n";
        let root = parse(text).expect("YAML");
        let more = root.get("more").expect("fields");
        assert_eq!((more.text_of("x"), more.text_of("y")), (Some("1"), Some("3")));
        assert_eq!(root.get("same").and_then(|same| same.text_of("y")), Some("2"));
    }

    #[test]
    fn a_bomb_and_a_syntax_error_are_refused() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let below = level - 1;
            let items = vec![format!("*a{below}"); 8].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert!(parse(&bomb).is_err(), "8 to the 12th values");
        assert_eq!(parse("a: [\n").expect_err("no YAML").mark.line, 2);
    }
}
