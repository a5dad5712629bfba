//! How many values a document has, for readers that make a tree of it: such a tree takes tens to
//! hundreds of bytes for each, however few bytes the text has.

use serde::de::DeserializeOwned;

use super::find::value_marks;

/// The most values of a document that is collected, where nothing else is said: requests of agents
/// have some tens of thousands, and answers of upstreams that are read whole a few hundred.
pub const VALUES_MAX: usize = 100_000;

/// The number of values inside a document, at any depth; `None` above `max`. The document itself is
/// none of them. What is no JSON is counted as far as a parser can come, or further.
#[must_use]
pub fn values_within(text: &[u8], max: usize) -> Option<usize> {
    let (mut values, mut is_string) = (0_usize, false);
    // What stands behind a backslash in a string means nothing.
    let mut escaped = usize::MAX;
    for at in value_marks(text) {
        match text.get(at) {
            _ if is_string && at == escaped => {}
            Some(b'"') => is_string = !is_string,
            Some(b'\\') if is_string => escaped = at + 1,
            _ if is_string => {}
            Some(b',') => values += 1,
            Some(b'{' | b'[') => {
                let inside = text.get(at + 1..).unwrap_or_default();
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

/// An upstream's answer, unless it is not what is looked for, or has more than [`VALUES_MAX`] values.
#[must_use]
pub fn from_upstream<T: DeserializeOwned>(answer: &[u8]) -> Option<T> {
    values_within(answer, VALUES_MAX)?;
    serde_json::from_slice(answer).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// The same, byte by byte.
    fn counted(text: &[u8]) -> usize {
        let (mut values, mut at) = (0, 0);
        while let Some(&byte) = text.get(at) {
            at += 1;
            match byte {
                b'"' => {
                    while let Some(&byte) = text.get(at) {
                        at += if byte == b'\\' { 2 } else { 1 };
                        if byte == b'"' {
                            break;
                        }
                    }
                }
                b',' => values += 1,
                b'{' | b'[' => {
                    let inside = text.get(at..).unwrap_or_default();
                    let next = inside.iter().find(|byte| !byte.is_ascii_whitespace());
                    values += usize::from(!matches!(next, Some(b'}' | b']')));
                }
                _ => {}
            }
        }
        values
    }

    proptest! {
        /// Whatever the text is, and wherever it ends.
        #[test]
        fn values_are_counted_as_byte_by_byte(text in r#"[\[\]{},:|"\\0a \t]{0,200}"#) {
            let values = counted(text.as_bytes());
            prop_assert_eq!(values_within(text.as_bytes(), values), Some(values), "{}", &text);
            if let Some(fewer) = values.checked_sub(1) {
                prop_assert_eq!(values_within(text.as_bytes(), fewer), None);
            }
        }
    }

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
