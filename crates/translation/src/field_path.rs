//! Reading members of a customer's request, with the path to each of them for refusals.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::{self, Write};

use crate::dialect::{Omission, Untranslatable};
use crate::json;
pub(crate) use crate::raw::Raw;

/// Members of an object up to here are compared with each other; of more, a table is made.
const FEW_MEMBERS: usize = 16;

/// Names of omissions at most: they go into one header.
const OMISSIONS_MAX: usize = 32;
/// The longest key of a customer's that a path repeats, in letters.
const KEY_LETTERS_MAX: usize = 64;

/// The members of an object, in the order in which they were written.
pub(crate) type MemberList<'a> = Vec<(Cow<'a, str>, Raw<'a>)>;

/// Path of a JSON value in a request, for error messages and for the names of dropped fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldPath<'p> {
    up: Option<&'p FieldPath<'p>>,
    step: PathStep<'p>,
}

/// Omissions of one request. Every path of the request leads here, so that any reader can note one.
#[derive(Debug, Default)]
pub(crate) struct OmissionLog(RefCell<Vec<Omission>>);

impl OmissionLog {
    /// The omissions, in the order in which they were met.
    pub(crate) fn into_omissions(self) -> Vec<Omission> {
        self.0.into_inner()
    }
}

#[derive(Clone, Copy, Debug)]
enum PathStep<'p> {
    Root(Option<&'p OmissionLog>),
    Key(&'p str),
    Index(usize),
}

impl<'p> FieldPath<'p> {
    /// The path of a request that notes no omissions.
    pub(crate) const ROOT: FieldPath<'static> = FieldPath { up: None, step: PathStep::Root(None) };

    /// The path of the request itself.
    pub(crate) fn root(left_out: &'p OmissionLog) -> Self {
        FieldPath { up: None, step: PathStep::Root(Some(left_out)) }
    }

    /// Notes that the field does not go upstream, by its path without places: `messages.annotations`.
    pub(crate) fn leave_out(&self) {
        self.note(self.name());
    }

    /// Notes that the item of this type does not go upstream: `input: web_search_call`.
    pub(crate) fn leave_out_kind(&self, kind: &str) {
        let mut name = self.name();
        name.push_str(": ");
        push_key(kind, &mut name);
        self.note(name);
    }

    fn note(&self, name: String) {
        let mut step = self;
        while let Some(up) = step.up {
            step = up;
        }
        let PathStep::Root(Some(OmissionLog(noted))) = step.step else { return };
        let Ok(mut noted) = noted.try_borrow_mut() else { return };
        if noted.len() < OMISSIONS_MAX && !noted.iter().any(|omission| omission.name == name) {
            noted.push(Omission { name, field: self.to_string() });
        }
    }

    /// The path without places, in letters that a header takes.
    fn name(&self) -> String {
        let mut name = self.up.map(Self::name).unwrap_or_default();
        if let PathStep::Key(key) = self.step {
            if !name.is_empty() {
                name.push('.');
            }
            push_key(key, &mut name);
        }
        name
    }

    /// The refusal of something that costs or means what no other dialect can say, with the reason.
    pub(crate) fn refused(&self, reason: &str) -> Untranslatable {
        Untranslatable::refused(self.to_string(), reason)
    }

    /// The member of this name.
    pub(crate) fn key(&'p self, key: &'p str) -> FieldPath<'p> {
        FieldPath { up: Some(self), step: PathStep::Key(key) }
    }

    /// The element at this place.
    pub(crate) fn index(&'p self, index: usize) -> FieldPath<'p> {
        FieldPath { up: Some(self), step: PathStep::Index(index) }
    }

    /// The refusal of something that other dialects have no words for.
    pub(crate) fn uncarried(&self) -> Untranslatable {
        Untranslatable::uncarried(self.to_string())
    }

    /// Refusal of a value of the wrong form; `expected` describes the right one, such as "a string".
    pub(crate) fn malformed(&self, expected: &str) -> Untranslatable {
        Untranslatable::malformed(self.to_string(), expected)
    }

    /// The value as a text.
    pub(crate) fn text<'a>(&self, value: Raw<'a>) -> Result<Cow<'a, str>, Untranslatable> {
        value.string().ok_or_else(|| self.malformed("a string"))
    }

    /// The value as `true` or `false`.
    pub(crate) fn boolean(&self, value: Raw<'_>) -> Result<bool, Untranslatable> {
        json::read(value.get()).ok_or_else(|| self.malformed("a boolean"))
    }

    /// The value as an integer from 0 up.
    pub(crate) fn count(&self, value: Raw<'_>) -> Result<u64, Untranslatable> {
        json::read(value.get()).ok_or_else(|| self.malformed("an integer from 0 up"))
    }

    /// The value as an integer.
    pub(crate) fn integer(&self, value: Raw<'_>) -> Result<i64, Untranslatable> {
        json::read(value.get()).ok_or_else(|| self.malformed("an integer"))
    }

    /// The value as a number.
    pub(crate) fn number(&self, value: Raw<'_>) -> Result<f64, Untranslatable> {
        json::read(value.get()).ok_or_else(|| self.malformed("a number"))
    }

    /// The elements of an array.
    pub(crate) fn list<'a>(&self, value: Raw<'a>) -> Result<Vec<Raw<'a>>, Untranslatable> {
        value.elements().ok_or_else(|| self.malformed("an array"))
    }

    /// The elements of an array of texts.
    pub(crate) fn texts<'a>(&self, value: Raw<'a>) -> Result<Vec<Cow<'a, str>>, Untranslatable> {
        let texts = self.list(value)?.into_iter().enumerate();
        texts.map(|(place, text)| self.index(place).text(text)).collect()
    }

    /// The members of an object, of which none is there twice.
    pub(crate) fn object<'a>(&self, value: Raw<'a>) -> Result<MemberList<'a>, Untranslatable> {
        let members = value.members().ok_or_else(|| self.malformed("an object"))?;
        match repeated_key(&members) {
            None => Ok(members),
            Some(key) => Err(self.key(key).malformed("there once")),
        }
    }

    /// A JSON object as text, byte for byte.
    pub(crate) fn json_object<'a>(&self, value: Raw<'a>) -> Result<Cow<'a, str>, Untranslatable> {
        if value.get().starts_with('{') {
            Ok(Cow::Borrowed(value.get()))
        } else {
            Err(self.malformed("an object"))
        }
    }

    /// The type of an object: the text of its member `type`.
    pub(crate) fn kind<'a>(
        &self,
        members: &MemberList<'a>,
    ) -> Result<Cow<'a, str>, Untranslatable> {
        let kind = members.iter().find(|(key, _)| key == "type");
        let (_, kind) = kind.ok_or_else(|| self.key("type").malformed("a string"))?;
        self.key("type").text(*kind)
    }

    /// Requires a value.
    pub(crate) fn needed<T>(&self, key: &str, value: Option<T>) -> Result<T, Untranslatable> {
        value.ok_or_else(|| self.key(key).malformed("there"))
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(up) = self.up {
            up.fmt(f)?;
        }
        match self.step {
            PathStep::Root(_) => Ok(()),
            PathStep::Key(key) => {
                if self.up.is_some_and(|up| !matches!(up.step, PathStep::Root(_))) {
                    f.write_char('.')?;
                }
                // A name comes from outside, and may be long.
                key.chars().take(KEY_LETTERS_MAX).try_for_each(|letter| f.write_char(letter))
            }
            PathStep::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Writes a customer's key in letters that a header takes, without the commas that part names there.
fn push_key(key: &str, out: &mut String) {
    let is_plain = |letter: char| letter.is_ascii_graphic() && letter != ',';
    let letters = key.chars().take(KEY_LETTERS_MAX);
    out.extend(letters.map(|letter| if is_plain(letter) { letter } else { '_' }));
}

/// True unless the value is `null`.
pub(crate) fn is_given(value: Raw<'_>) -> bool {
    value.get() != "null"
}

/// True if a text is exactly one JSON object.
pub(crate) fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && json::read::<&serde_json::value::RawValue>(text).is_some()
}

/// The text of a request as the value that it is.
pub(crate) fn document(body: &[u8]) -> Result<Raw<'_>, Untranslatable> {
    let text = std::str::from_utf8(body).ok();
    text.and_then(Raw::document).ok_or_else(|| Untranslatable {
        field: Cow::Borrowed("body"),
        message: "The request body must be a JSON object.".to_owned(),
    })
}

/// A key that is there twice, if there is one.
fn repeated_key<'m>(members: &'m MemberList<'_>) -> Option<&'m str> {
    if members.len() <= FEW_MEMBERS {
        let mut rest = members.iter();
        return std::iter::from_fn(|| rest.next().map(|(key, _)| (key, rest.clone())))
            .find(|(key, rest)| rest.clone().any(|(later, _)| later == *key))
            .map(|(key, _)| &**key);
    }
    let mut seen = HashSet::with_capacity(members.len());
    members.iter().map(|(key, _)| &**key).find(|key| !seen.insert(*key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_as_people_write_them() {
        let messages = FieldPath::ROOT.key("messages");
        let second = messages.index(2);
        assert_eq!(second.key("content").to_string(), "messages[2].content");
        let body = document(br#"{"a": 1, "b\u0063": "x"}"#).expect("a document");
        let members = FieldPath::ROOT.object(body).expect("an object");
        assert_eq!(members[1].0, "bc");
        let left_out = OmissionLog::default();
        let root = FieldPath::root(&left_out);
        let messages = root.key("messages");
        for place in 0..2 {
            messages.index(place).key("a,\u{e9}").leave_out();
            messages.index(place).leave_out_kind("call");
        }
        let omissions = left_out.into_omissions();
        let names: Vec<&str> = omissions.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["messages.a__", "messages: call"]);
        assert_eq!(omissions[1].field, "messages[0]");
        let twice = document(br#"{"a": 1, "\u0061": 2}"#).expect("a document");
        assert_eq!(FieldPath::ROOT.object(twice).expect_err("twice").field, "a");
    }
}
