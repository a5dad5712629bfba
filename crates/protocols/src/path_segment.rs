//! Texts from outside as segments of upstream paths: the only encoder of such texts in the tree.
//!
//! Percent-encoding alone keeps a text within its segment for servers that split a path before they
//! decode it (RFC 3986, section 2.4). Others decode first, some of them twice, and then normalise: they
//! read `a%2F..%2Fadmin` as `admin`. A text that any of them could read as another path is no segment.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};

/// Everything but the unreserved characters of RFC 3986, section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Rounds of decoding that are looked through. Proxies in front of a server decode once each.
const DECODINGS_MAX: usize = 4;

/// Encodes a text as one segment of a path; `None` for one that [leads elsewhere](is_safe).
#[must_use]
pub fn encode(text: &str) -> Option<String> {
    is_safe(text).then(|| utf8_percent_encode(text, RESERVED).to_string())
}

/// True if no server reads the text as another path, however often it decodes it: no segment is empty or made
/// of dots, with either slash, and nothing ends the path or begins a parameter in it.
#[must_use]
pub fn is_safe(text: &str) -> bool {
    let mut decoded = text.to_owned();
    for _ in 0..=DECODINGS_MAX {
        if !is_plain(&decoded) {
            return false;
        }
        if !decoded.contains('%') {
            return true;
        }
        let next: Vec<u8> = percent_decode(decoded.as_bytes()).collect();
        // What is not UTF-8 can be an overlong form of a dot or a slash.
        let Ok(next) = String::from_utf8(next) else { return false };
        if next == decoded {
            return true;
        }
        decoded = next;
    }
    false
}

/// True if the text, decoded no further, stays within its segment.
fn is_plain(text: &str) -> bool {
    let is_bad = |letter: char| letter.is_control() || matches!(letter, '?' | '#' | ';');
    if text.is_empty() || text.chars().map(folded).any(is_bad) {
        return false;
    }
    let is_slash = |letter: char| matches!(folded(letter), '/' | '\\');
    text.split(is_slash).all(|segment| {
        // Windows drops spaces and dots at the end of a name.
        let segment = segment.trim();
        segment.chars().any(|letter| !matches!(folded(letter), '.' | ' '))
    })
}

/// The ASCII character that Unicode's compatibility mappings, and Windows' best-fit tables, make of a
/// letter, as far as it divides or steps up a path.
fn folded(letter: char) -> char {
    match letter {
        '\u{ff0e}' | '\u{2024}' | '\u{2025}' | '\u{2026}' | '\u{fe52}' => '.',
        '\u{ff0f}' | '\u{2044}' | '\u{2215}' => '/',
        '\u{ff3c}' | '\u{fe68}' | '\u{2216}' => '\\',
        '\u{ff1b}' | '\u{fe54}' => ';',
        '\u{ff1f}' | '\u{fe56}' => '?',
        '\u{ff03}' | '\u{fe5f}' => '#',
        // Percent signs: what is behind one would be decoded later.
        '\u{ff05}' | '\u{fe6a}' => '\0',
        letter => letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models_are_one_segment() {
        for (name, expected) in [
            ("gpt-4.1-mini", "gpt-4.1-mini"),
            ("meta-llama/Llama-3.3-70B", "meta-llama%2FLlama-3.3-70B"),
            (
                "anthropic.claude-sonnet-4-5-20250929-v1:0",
                "anthropic.claude-sonnet-4-5-20250929-v1%3A0",
            ),
            (
                "arn:aws:bedrock:eu-west-1::inference-profile/eu.m",
                "arn%3Aaws%3Abedrock%3Aeu-west-1%3A%3Ainference-profile%2Feu.m",
            ),
            ("claude-opus@20250101", "claude-opus%4020250101"),
            (".hidden/a..b/...c", ".hidden%2Fa..b%2F...c"),
            ("ft:gpt-4o:org::id", "ft%3Agpt-4o%3Aorg%3A%3Aid"),
            ("ü 100%", "%C3%BC%20100%25"),
        ] {
            assert_eq!(encode(name).as_deref(), Some(expected), "{name}");
        }
    }

    #[test]
    fn texts_that_some_server_reads_as_another_path_are_none() {
        for name in [
            "",
            ".",
            "..",
            "...",
            "az-x/../../admin",
            "az-x\\..\\admin",
            "a/./b",
            "a//b",
            "/a",
            "a/",
            "a/.. /b",
            "a%2f..%2fb",
            "a/%2e%2E/b",
            "a%5c..%5Cb",
            "a%252f%252e%252e%252fb",
            "a%25252f..%25252fb",
            "%25252525252525252e",
            "a%c0%ae%c0%ae/b",
            "a%ff",
            "a/..;/b",
            "a;b=c",
            "a%3bb",
            "a?key=b",
            "a%3Fkey=b",
            "a#b",
            "a%23b",
            "a\r\nb",
            "a%0d%0ab",
            "a%00",
            "a\u{7f}",
            "a/．．/b",
            "a／..／b",
            "a/‥/b",
            "a％2f..",
        ] {
            assert_eq!(encode(name), None, "{name:?}");
        }
    }
}
