//! Results of the operators' forms.

use axum::response::Response;

use super::BASE;
use tollgate_web_kit::DoneMessages;

/// Names of completed actions in URLs, with their messages.
pub(super) const DONE: DoneMessages = DoneMessages(&[
    ("created", "The account was opened."),
    ("granted", "The money was given."),
    ("written-off", "The debt is lower by that."),
    ("refunded", "The money was given back."),
    ("limited", "The limits were changed. They hold from the next call on."),
    ("credit-set", "The credit line was set."),
    ("holds-set", "The hold rules were set. They hold from the next call on."),
    ("priced", "The prices were set. They hold for calls that come from now on."),
    ("group-made", "The price group was made. Put customers in it on their pages."),
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
]);

/// Redirect to a page of the console that confirms the action.
pub(super) fn redirect(path: &str, word: &'static str) -> Response {
    DONE.redirect(&format!("{BASE}{path}"), word)
}
