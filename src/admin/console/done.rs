//! What a form came to, in the address of the page that it leads to: one of a few words, so that no
//! link can put words into the console's mouth.

use axum::response::{IntoResponse as _, Redirect, Response};

use super::BASE;

/// What the words mean.
const DONE: &[(&str, &str)] = &[
    ("created", "The account was opened."),
    ("granted", "The money was given."),
    ("refunded", "The money was given back."),
    ("limited", "The limits were changed. They hold from the next call on."),
    ("renamed", "The account has its new name."),
    ("suspended", "The account is suspended: its keys are refused from now on."),
    ("resumed", "The account is taken up again."),
    ("key-off", "The key is switched off."),
    ("key-on", "The key is switched on."),
    ("revoked", "The code was revoked. What it gave stays given."),
    ("resolved", "The doubt is resolved."),
    (
        "suspense-resolved",
        "The money is in suspense no more. The node is shut out until it joins anew.",
    ),
    ("announced", "The end of the task is announced once more, from the first try."),
    ("reloaded", "The files are in force."),
];

/// The text of the word in a query string.
pub(super) fn said(query: Option<&str>) -> Option<&'static str> {
    let mut fields = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let (_, word) = fields.find(|(name, _)| name == "done")?;
    DONE.iter().find(|(known, _)| *known == word).map(|(_, text)| *text)
}

/// On to a page of the console, which says that it was done.
pub(super) fn then(path: &str, word: &'static str) -> Response {
    debug_assert!(DONE.iter().any(|(known, _)| *known == word), "{word} has no text");
    Redirect::to(&format!("{BASE}{path}?done={word}")).into_response()
}
