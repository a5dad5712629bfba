//! Keys that were copied with something around them. None of what is said of them shows any of them.

use crate::document::{Document, Fault};
use crate::spans::DocumentPath;
use tollgate_types::secret::Secret;

/// Schemes that stand before a credential in the header `Authorization`.
const SCHEMES: [&str; 3] = ["bearer", "basic", "token"];

/// Notes what cannot be a key, or is sent with more than the key.
pub(super) fn check_key(document: &mut Document, path: &DocumentPath, secret: &Secret) {
    let text = secret.expose();
    if let Some((message, help)) = pasted(text) {
        document.note(Fault::at_value(path, message).help(help));
        return;
    }
    check_secret(document, path, Some(secret));
    check_quotes(document, path, text);
}

/// Checks that a secret can be sent in a header: visible characters, by RFC 9110 section 5.5. The message
/// does not contain it.
pub(super) fn check_secret(document: &mut Document, path: &DocumentPath, secret: Option<&Secret>) {
    if secret.is_some_and(|secret| !secret.expose().bytes().all(|byte| byte.is_ascii_graphic())) {
        let message = "this cannot be sent in a header: it has spaces, line breaks or other letters than ASCII";
        document.note(Fault::at_value(path, message));
    }
}

/// Warns of a text in quotation marks: YAML takes its own away, and what is in a variable or file does not.
pub(super) fn check_quotes(document: &mut Document, path: &DocumentPath, text: &str) {
    let is_mark = |letter: char| matches!(letter, '"' | '\'' | '`');
    if text.starts_with(is_mark) || text.ends_with(is_mark) {
        let message = "this is in quotation marks, which are sent with it";
        let help = "take them out of the variable or file: Docker's `--env-file` and systemd's \
                    `LoadCredential` keep them";
        document.note(Fault::at_value(path, message).warning().help(help));
    }
}

/// Text around a copied key that makes it unusable: what is wrong, and help.
fn pasted(text: &str) -> Option<(&'static str, &'static str)> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next().unwrap_or_default().trim_end_matches(':');
    let is_scheme = |word: &str| SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme));
    let is_header = first.eq_ignore_ascii_case("authorization");
    if is_header || is_scheme(first) && words.next().is_some() {
        let message = "this is more than the key: it begins with what the gateway sends before it";
        return Some((message, "leave out `Authorization:` and the scheme, such as `Bearer`"));
    }
    if text.trim() != text || text.ends_with("\\n") {
        let message = "there is white space or a line break around this key";
        return Some((message, "take it out of the variable or file"));
    }
    let (name, value) = text.split_once('=')?;
    // Base64 ends with the same sign.
    let is_variable = name.contains('_')
        && !value.trim_matches('=').is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    is_variable.then_some((
        "this begins with the name of a variable",
        "leave out `NAME=`: the file holds the key alone",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_copied_with_a_key_is_told_from_one() {
        for text in [
            "Bearer sk-1234567",
            "bearer  sk-1234567",
            "Authorization: Bearer sk-1234567",
            " sk-1234567",
            "sk-1234567\n",
            "sk-1234567\r",
            "\tsk-1234567",
            "sk-1234567\\n",
            "OPENAI_API_KEY=sk-1234567",
        ] {
            assert!(pasted(text).is_some(), "{text:?}");
        }
        for text in [
            "sk-1234567",
            "Bearer",
            "token-1234567",
            "Zm9vYmFyIGJheg==",
            "A=B",
            "AKIA=x",
            "AB_CD==",
        ] {
            assert!(pasted(text).is_none(), "{text:?}");
        }
    }
}
