//! The members of a Gemini object, whichever of its two spellings a client uses.

use std::borrow::Cow;

use crate::dialect::Untranslatable;
use crate::field_path::{FieldPath, MemberList, Raw};

/// The members of an object by their names in camel case: Google reads a field by either of two names.
pub(super) fn members<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
) -> Result<MemberList<'a>, Untranslatable> {
    let mut members = at.object(value)?;
    for (key, _) in &mut members {
        if key.contains('_') {
            *key = Cow::Owned(camel(key));
        }
    }
    for (place, (key, _)) in members.iter().enumerate() {
        // Of two spellings nobody knows which one counts.
        if members.iter().take(place).any(|(earlier, _)| earlier == key) {
            return Err(at.key(key).malformed("there once"));
        }
    }
    Ok(members)
}

/// A name such as `system_instruction` as `systemInstruction`.
fn camel(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    let mut is_first = false;
    for letter in key.chars() {
        match letter {
            '_' => is_first = true,
            letter if std::mem::take(&mut is_first) => name.push(letter.to_ascii_uppercase()),
            letter => name.push(letter),
        }
    }
    name
}
