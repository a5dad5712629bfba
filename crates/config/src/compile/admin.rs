//! The admin API: its token, and operators with tokens of their own.

use std::collections::HashSet;

use super::secrets::check_secret;
use super::{check_name, listeners};
use crate::document::{Document, Fault};
use crate::snapshot::{Admin, Operator};
use crate::spans::DocumentPath;
use crate::{Overrides, raw};
use tollgate_types::secret::Secret;

/// Maximum number of operators: more should use an identity provider in front.
const OPERATORS_MAX: usize = 100;
/// Minimum length of a token, in bytes: shorter ones could be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// Fewer different characters are no random text: of 16 hexadecimal digits one has ten in most cases.
const TOKEN_LETTERS_MIN: usize = 6;
/// Placeholders that examples use for tokens, in lower case and without separators.
const PLACEHOLDERS: [&str; 8] = [
    "changeme",
    "replaceme",
    "placeholder",
    "yourtoken",
    "youradmintoken",
    "insecure",
    "password",
    "0123456789abcdef0123456789abcdef",
];
/// Name of users of `admin.token` in the audit log.
const ADMIN: &str = "admin";

/// Compiles valid settings, and reports the others.
pub(super) fn compile(
    document: &mut Document,
    raw: raw::AdminSection,
    overrides: &Overrides,
) -> Admin {
    let token = raw.token.map(|token| token.0).filter(|token| !token.expose().is_empty());
    let at = DocumentPath::root().key("admin");
    check_secret(document, &at.key("token"), token.as_ref());
    if let Some(token) = &token {
        check_token(document, &at.key("token"), token);
    }
    let operators: Vec<Operator> = raw
        .operators
        .into_iter()
        .map(|operator| Operator { name: operator.name, token: operator.token.0 })
        .collect();
    check_operators(document, &at.key("operators"), token.as_ref(), &operators);
    let address = overrides.admin.unwrap_or(raw.address.0);
    let tls = raw.tls.as_ref();
    // Canonical: `::ffff:127.0.0.1` is the loopback as well.
    if tls.is_none() && !address.ip().to_canonical().is_loopback() {
        let message = "tokens go to this address over the network in clear text";
        let help =
            "listen on 127.0.0.1, or give it a certificate: `tls: { certificate: …, key: … }`";
        document.note(Fault::at_value(&at.key("address"), message).warning().help(help));
    }
    let tls = tls.and_then(|raw| listeners::certificate(document, &at.key("tls"), raw));
    Admin { address, token, tls, operators, console: raw.console }
}

/// Reports a token that can be guessed.
fn check_token(document: &mut Document, at: &DocumentPath, token: &Secret) {
    let text = token.expose();
    let letters: String =
        text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let message = if text.len() < TOKEN_BYTES_MIN {
        "this token is too short"
    // Letters alone are compared: examples write `change-me` in many ways.
    } else if PLACEHOLDERS.iter().any(|word| letters.contains(word)) {
        "this token is a placeholder that was never replaced"
    } else if text.chars().collect::<HashSet<_>>().len() < TOKEN_LETTERS_MIN {
        "this token has too few different characters"
    } else {
        return;
    };
    let help = format!("at least {TOKEN_BYTES_MIN} characters, such as of `openssl rand -hex 32`");
    document.note(Fault::at_value(at, message).help(help));
}

fn check_operators(
    document: &mut Document,
    at: &DocumentPath,
    token: Option<&Secret>,
    operators: &[Operator],
) {
    if operators.len() > OPERATORS_MAX {
        let message = format!("there are more than {OPERATORS_MAX} operators");
        document.note(Fault::at_key(at, message));
    }
    // The audit log names operators: two of one name could not be told apart.
    let mut names = HashSet::from([ADMIN]);
    let mut tokens: HashSet<&str> = token.iter().map(|token| token.expose()).collect();
    for (index, Operator { name, token }) in operators.iter().enumerate() {
        let (name_at, token_at) = (at.index(index).key("name"), at.index(index).key("token"));
        check_name(document, &name_at, name, "-_.@");
        check_secret(document, &token_at, Some(token));
        if !names.insert(name) {
            let message = format!("`{name}` is another operator's name");
            let help = "`admin` is whoever uses `admin.token`";
            document.note(Fault::at_value(&name_at, message).help(help));
        }
        check_token(document, &token_at, token);
        // The token alone says who the operator is.
        if !tokens.insert(token.expose()) {
            document.note(Fault::at_value(&token_at, "another operator has this token"));
        }
    }
}
