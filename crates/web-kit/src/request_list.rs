//! Shared parts of the consoles' request lists: statuses, and the filter for the next page.

use tollgate_telemetry::request_log::{RequestRecord, RingPosition, StatusFilter};

/// Error for a status that cannot be filtered by.
pub const STATUS_EXPECTED: &str = "A status such as 429, or a class such as 4xx.";

/// Outcome of a request: `task` with the state of a task, else the status that was sent.
pub fn status_text(logged: &RequestRecord, task: impl FnOnce(&str) -> String) -> String {
    match (&logged.task_state, logged.status) {
        (Some(state), _) => task(state),
        (None, 0) => "no answer".to_owned(),
        (None, status) => status.to_string(),
    }
}

/// The class of the style sheet for how a request ended.
pub fn status_class(logged: &RequestRecord) -> &'static str {
    if logged.is_error() { "bad" } else { "good" }
}

/// Parses a status or class of statuses; `None` for all.
///
/// # Errors
/// [`STATUS_EXPECTED`] for anything else.
pub fn status_filter(typed: &str) -> Result<Option<StatusFilter>, &'static str> {
    match typed.trim() {
        "" => Ok(None),
        status => status.parse().map(Some).map_err(|_| STATUS_EXPECTED),
    }
}

/// The query string of the next page of a list: the fields of its filter that are not empty, and where
/// the list goes on.
pub fn query_before(filter: &[(&str, &str)], before: RingPosition) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in filter.iter().filter(|(_, value)| !value.is_empty()) {
        query.append_pair(name, value);
    }
    query.append_pair("before", &before.to_string()).finish()
}
