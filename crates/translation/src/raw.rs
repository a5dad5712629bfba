//! Values of a request by where they stand in its text.
//!
//! A request is read from the outside inwards, and each level goes over what is inside it once more. So
//! what is not looked at is passed over quickly: a text by its closing quote alone. That is enough, as
//! whoever translates has checked that the request is JSON; of what is not, something is made that is
//! refused further on, and never anything that reaches beyond it.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

use crate::json;

/// A value of a request, as it was written, without the white space around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raw<'a>(&'a str);

impl<'a> Raw<'a> {
    /// The value that a text is, with white space around it at most.
    pub(crate) fn document(text: &'a str) -> Option<Self> {
        let text = text.trim_matches(is_space);
        (end_of_value(text.as_bytes(), 0)? == text.len()).then_some(Self(text))
    }

    /// The value as it was written.
    pub(crate) fn get(self) -> &'a str {
        self.0
    }

    /// The text of a value that is a string.
    pub(crate) fn string(self) -> Option<Cow<'a, str>> {
        let inside = self.0.strip_prefix('"')?.strip_suffix('"')?;
        match memchr(b'\\', inside.as_bytes()) {
            None => Some(Cow::Borrowed(inside)),
            Some(_) => json::read::<json::BorrowedStr<'_>>(self.0).map(|text| text.0),
        }
    }

    /// The elements of an array.
    pub(crate) fn elements(self) -> Option<Vec<Self>> {
        let mut reader = InsideReader::enter(self.0, b'[')?;
        let mut elements = Vec::new();
        while reader.has_next(b']')? {
            elements.push(reader.value()?);
        }
        Some(elements)
    }

    /// The members of an object, in the order in which they were written.
    pub(crate) fn members(self) -> Option<Vec<(Cow<'a, str>, Self)>> {
        let mut reader = InsideReader::enter(self.0, b'{')?;
        // Most objects of a request are messages and blocks, with two to four members.
        let mut members = Vec::with_capacity(4);
        while reader.has_next(b'}')? {
            let key = reader.value()?.string()?;
            reader.eat(b':')?;
            members.push((key, reader.value()?));
        }
        Some(members)
    }
}

/// Iterates over the values within an array or an object.
struct InsideReader<'a> {
    text: &'a str,
    at: usize,
    is_first: bool,
}

impl<'a> InsideReader<'a> {
    fn enter(text: &'a str, open: u8) -> Option<Self> {
        let mut reader = Self { text, at: 0, is_first: true };
        reader.eat(open)?;
        Some(reader)
    }

    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let spaces = rest.iter().position(|byte| !is_space(char::from(*byte)))?;
        self.at += spaces;
        rest.get(spaces).copied()
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Moves to the next value: past the comma before it. `false` at the closing bracket; `None` if the text
    /// ends.
    fn has_next(&mut self, close: u8) -> Option<bool> {
        let is_first = std::mem::take(&mut self.is_first);
        if self.peek()? == close {
            self.at += 1;
            // Text behind the closing bracket is no part of the value, so the value is none.
            return (self.at == self.text.len()).then_some(false);
        }
        if !is_first {
            self.eat(b',')?;
        }
        Some(true)
    }

    fn value(&mut self) -> Option<Raw<'a>> {
        self.peek()?;
        let end = end_of_value(self.text.as_bytes(), self.at)?;
        let value = self.text.get(self.at..end)?;
        self.at = end;
        Some(Raw(value))
    }
}

/// True for JSON white space.
fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r')
}

/// The position behind the value that begins at `at`.
fn end_of_value(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => end_of_string(text, at),
        b'{' | b'[' => end_of_container(text, at),
        // A value is missing: an empty one would let `[,]` pass for two.
        b',' | b':' | b'}' | b']' => None,
        _ => {
            let rest = text.get(at..)?;
            let ends = |byte: &u8| {
                matches!(byte, b',' | b'}' | b']' | b':' | b'"' | b'{' | b'[')
                    || is_space(char::from(*byte))
            };
            Some(at + rest.iter().position(ends).unwrap_or(rest.len()))
        }
    }
}

/// The position behind the string whose quote is at `at`.
fn end_of_string(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        let found = at + memchr2(b'"', b'\\', text.get(at..)?)?;
        match text.get(found)? {
            b'"' => return Some(found + 1),
            // The letter behind a backslash is passed over unseen: it may be a quote.
            _ => at = found + 2,
        }
    }
}

/// The position behind the array or the object that begins at `at`.
fn end_of_container(text: &[u8], mut at: usize) -> Option<usize> {
    // Counted instead of called again: a request of brackets alone must not fill the stack.
    let mut depth = 0_usize;
    loop {
        match text.get(at)? {
            b'"' => {
                at = end_of_string(text, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// The value that a parser reads from the members and elements found here.
    fn rebuilt(raw: Raw<'_>) -> Option<Value> {
        match raw.get().as_bytes().first()? {
            b'"' => Some(raw.string()?.into_owned().into()),
            b'[' => raw
                .elements()?
                .into_iter()
                .map(rebuilt)
                .collect::<Option<Vec<_>>>()
                .map(Value::from),
            b'{' => {
                let members = raw.members()?.into_iter();
                members
                    .map(|(key, value)| Some((key.into_owned(), rebuilt(value)?)))
                    .collect::<Option<serde_json::Map<_, _>>>()
                    .map(Value::from)
            }
            _ => serde_json::from_str(raw.get()).ok(),
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z\"\\\\é漢{}\\[\\],: \n]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[a-z\"\\\\{},]{0,6}", inner, 0..5).prop_map(
                    |members| members.into_iter().collect::<serde_json::Map<_, _>>().into()
                ),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_reads_what_a_parser_reads(value in any_value(), is_pretty in any::<bool>()) {
            let text = if is_pretty { format!(" {value:#}\r\n") } else { value.to_string() };
            prop_assert_eq!(Raw::document(&text).and_then(rebuilt), Some(value), "{}", text);
        }

        #[test]
        fn what_is_no_json_makes_nothing_panic(text in "[\\[\\]{}\":,a0\\\\ é]{0,40}") {
            if let Some(value) = Raw::document(&text).and_then(rebuilt) {
                // What is accepted here and not by a parser is at most a text with raw controls.
                prop_assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(value), "{}", text);
            }
        }
    }

    #[test]
    fn depth_takes_no_stack() {
        let deep = format!("{}1{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert_eq!(Raw::document(&deep).and_then(Raw::elements).expect("elements").len(), 1);
        assert_eq!(Raw::document(&deep[1..]), None);
    }
}
