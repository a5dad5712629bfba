//! Counts the values of a document, for readers that build a tree of it: a tree takes tens to hundreds of
//! bytes per value, however few bytes the text has.

use serde::de::DeserializeOwned;

use super::plain_text_end;

/// Default maximum number of values in a collected document: agents' requests have some tens of thousands,
/// and unstreamed answers a few hundred.
pub const VALUES_MAX: usize = 100_000;

/// The number of values inside a document, at any depth; `None` above `max`. The document itself is
/// none of them. What is no JSON is counted as far as a parser can come, or further.
#[must_use]
pub fn values_within(text: &[u8], max: usize) -> Option<usize> {
    let (mut values, mut at) = (0_usize, 0);
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(text, at),
            b',' => values += 1,
            b'{' | b'[' => {
                let inside = text.get(at..).unwrap_or_default();
                let next = inside.iter().find(|byte| !byte.is_ascii_whitespace());
                values += usize::from(!matches!(next, Some(b'}' | b']')));
            }
            _ => {}
        }
        if values > max {
            return None;
        }
    }
    Some(values)
}

/// Position after the closing quote of a string.
fn string_end(text: &[u8], mut at: usize) -> usize {
    loop {
        at = plain_text_end(text, at);
        match text.get(at) {
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return text.len(),
        }
    }
}

/// An upstream's answer, unless it is not what is looked for, or has more than [`VALUES_MAX`] values.
#[must_use]
pub fn from_upstream<T: DeserializeOwned>(answer: &[u8]) -> Option<T> {
    values_within(answer, VALUES_MAX)?;
    serde_json::from_slice(answer).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn answers_of_upstreams_that_are_too_much_are_none() {
        let zeros = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        let read = |answer: &str| from_upstream::<Value>(answer.as_bytes());
        assert!(read(&zeros(VALUES_MAX)).is_some(), "as many as allowed");
        assert_eq!(read(&zeros(VALUES_MAX + 1)), None);
        assert_eq!(read(&zeros(20_000_000)), None);
        assert_eq!(read(&"[".repeat(VALUES_MAX)), None, "too deep");
        assert_eq!(read(&format!("{}1{}", "[".repeat(90_000), "]".repeat(90_000))), None);
        assert_eq!(read("no JSON"), None);
    }
}
