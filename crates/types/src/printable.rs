//! Texts of others on a terminal: what would steer it is written out, and what is long is cut.

use std::borrow::Cow;

/// True for a character that changes how a terminal renders those around it: control characters of
/// C0 and C1, `DEL`, directional marks, and line or paragraph separators. Unicode Standard Annex 9,
/// "Explicit directional formatting characters" and "Implicit directional marks".
#[must_use]
pub fn is_steering(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
        )
}

/// A character as `\u001b`, which is how JSON writes it too.
fn push_escape(text: &mut String, character: char) {
    const HEX: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let mut units = [0; 2];
    for unit in character.encode_utf16(&mut units) {
        text.push_str("\\u");
        text.extend([12, 8, 4, 0].map(|shift| HEX[usize::from((*unit >> shift) & 0xf)]));
    }
}

/// The text with every steering character but those that `is_kept` written out as `\u001b`.
pub fn escaped_but(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_harmful = |character: char| is_steering(character) && !is_kept(character);
    let Some(first) = text.find(is_harmful) else { return Cow::Borrowed(text) };
    let (before, rest) = text.split_at(first);
    let mut escaped = String::with_capacity(text.len().saturating_add(16));
    escaped.push_str(before);
    for character in rest.chars() {
        if is_harmful(character) {
            push_escape(&mut escaped, character);
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// A text of one line as it may be printed: steering characters, also line breaks, are written out as
/// `\u001b`.
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    escaped_but(text, |_| false)
}

/// The first `chars_max` characters of a text, and how many more there are.
#[must_use]
pub fn shortened(text: &str, chars_max: usize) -> Cow<'_, str> {
    let Some((end, _)) = text.char_indices().nth(chars_max) else { return Cow::Borrowed(text) };
    let (begin, rest) = text.split_at(end);
    Cow::Owned(format!("{begin}… ({} more characters)", rest.chars().count()))
}

/// A text of others as a part of a line: its first `chars_max` characters, escaped.
#[must_use]
pub fn one_line(text: &str, chars_max: usize) -> Cow<'_, str> {
    match shortened(text, chars_max) {
        Cow::Borrowed(text) => escaped(text),
        Cow::Owned(text) => Cow::Owned(escaped(&text).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_written_out() {
        for (text, expected) in [
            ("plain, ünïcödé, 日本, 🦀", "plain, ünïcödé, 日本, 🦀"),
            ("\u{1b}[2J\u{7}\u{7f}", "\\u001b[2J\\u0007\\u007f"),
            ("\u{9b}31m", "\\u009b31m"),
            ("a\u{202e}b\u{2069}c\u{2028}d", "a\\u202eb\\u2069c\\u2028d"),
            ("a\r\nb\tc", "a\\u000d\\u000ab\\u0009c"),
        ] {
            assert_eq!(escaped(text), expected, "{text:?}");
        }
        assert_eq!(escaped_but("a\n\u{1b}", |c| c == '\n'), "a\n\\u001b");
        for character in (0..=0x10_ffff).filter_map(char::from_u32).filter(|c| is_steering(*c)) {
            let text = character.to_string();
            let json = format!("\"{}\"", escaped(&text));
            let read: String = serde_json::from_str(&json).expect("JSON");
            assert_eq!(read, text, "JSON reads it back");
        }
    }

    #[test]
    fn what_is_long_is_cut_and_says_by_how_much() {
        assert_eq!(shortened("äbc", 3), "äbc");
        assert_eq!(shortened("äbcde", 3), "äbc… (2 more characters)");
        assert_eq!(shortened("", 0), "");
    }
}
