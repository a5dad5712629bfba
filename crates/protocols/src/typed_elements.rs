//! Elements of an array by their `type`, found without reading what else they have: a tool is mostly schema.

use super::json::{Object, Value};
use super::json_cursor::Cursor;

/// The `type` of an element, as far as it is known without reading the element as an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementType<'a> {
    /// The element has none, or is no object.
    None,
    /// As it is written, with its quotes and without an escape.
    Plain(&'a [u8]),
    /// The element must be read: a key or the type has an escape, or there are two types.
    Unclear,
}

impl ElementType<'_> {
    /// True if the type can be a word that begins so.
    pub(super) fn may_begin_with(self, start: &str) -> bool {
        match self {
            Self::None => false,
            Self::Plain(written) => {
                written.strip_prefix(b"\"").is_some_and(|word| word.starts_with(start.as_bytes()))
            }
            Self::Unclear => true,
        }
    }
}

/// Passes each element of the array `value`, a member of `document`, to `take` as it is written and with its
/// type, until that says false. Passes none of another value.
pub(super) fn each_typed<'a>(
    document: &'a Object<'_>,
    value: &Value<'_>,
    mut take: impl FnMut(&'a [u8], ElementType<'a>) -> bool,
) {
    if !value.is_array() {
        return;
    }
    // The document was checked: nothing in it is unreadable, and only `take` ends the walk.
    let _is_whole = Cursor::of_member(document, value).array(|element| {
        let is_object = element.next_byte()? == b'{';
        let start = element.at;
        let mut kind = ElementType::None;
        if is_object {
            element.object(|key, value| read_member(&mut kind, key, value))?;
        } else {
            element.skip()?;
        }
        take(element.text.get(start..element.at)?, kind).then_some(())
    });
}

fn read_member<'a>(kind: &mut ElementType<'a>, key: &[u8], value: &mut Cursor<'a>) -> Option<()> {
    match key {
        b"type" => {
            let written = value.raw()?;
            let is_plain = *kind == ElementType::None && !written.contains(&b'\\');
            *kind = if is_plain { ElementType::Plain(written) } else { ElementType::Unclear };
        }
        _ => {
            if key.contains(&b'\\') {
                *kind = ElementType::Unclear;
            }
            value.skip()?;
        }
    }
    Some(())
}
