//! The admin API: its token, and operators with tokens of their own.

use std::collections::HashSet;

use super::check_name;
use super::routes::check_secret;
use crate::config::document::{Document, Fault};
use crate::config::snapshot::{Admin, Operator};
use crate::config::spans::Path;
use crate::config::{Overrides, raw};
use crate::secret::Secret;

/// More operators are a sign that something else should know who people are.
const OPERATORS_MAX: usize = 100;
/// Tokens that are shorter could be guessed: the admin API has no rate limit.
const TOKEN_BYTES_MIN: usize = 16;
/// The name of whoever uses `admin.token`.
const ADMIN: &str = "admin";

/// Compiles what is in order, and notes the rest.
pub(super) fn compile(document: &mut Document, raw: raw::Admin, overrides: &Overrides) -> Admin {
    let token = raw.token.map(|token| token.0).filter(|token| !token.expose().is_empty());
    let at = Path::root().key("admin");
    check_secret(document, &at.key("token"), token.as_ref());
    let operators: Vec<Operator> = raw
        .operators
        .into_iter()
        .map(|operator| Operator { name: operator.name, token: operator.token.0 })
        .collect();
    check_operators(document, &at.key("operators"), token.as_ref(), &operators);
    let address = overrides.admin.unwrap_or(raw.address.0);
    Admin { address, token, operators, console: raw.console }
}

fn check_operators(
    document: &mut Document,
    at: &Path,
    token: Option<&Secret>,
    operators: &[Operator],
) {
    if operators.len() > OPERATORS_MAX {
        let message = format!("there are more than {OPERATORS_MAX} operators");
        document.note(Fault::at_key(at, message));
    }
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
        if token.expose().len() < TOKEN_BYTES_MIN {
            let message = "this token is too short";
            let help =
                format!("at least {TOKEN_BYTES_MIN} characters, such as of `openssl rand -hex 32`");
            document.note(Fault::at_value(&token_at, message).help(help));
        } else if !tokens.insert(token.expose()) {
            document.note(Fault::at_value(&token_at, "another operator has this token"));
        }
    }
}
