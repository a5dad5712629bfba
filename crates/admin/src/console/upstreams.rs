//! Health of the upstreams, and the targets that a request would try.

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::{LenientQuery, LoggedInOperator};
use crate::explain::{self, Explanation};
use crate::upstreams::{self, TargetState, TargetView, UpstreamView};
use tollgate_ledger::KeyId;
use tollgate_web_kit::{HtmlPage, PageFrame, show};

/// Targets that are shown on one page, over all upstreams.
const TARGETS_MAX: usize = 400;

/// A route to explain.
#[derive(Default, Deserialize)]
pub(super) struct RouteQuery {
    #[serde(default)]
    model: String,
    #[serde(default)]
    key: String,
}

#[derive(Template)]
#[template(path = "operator_upstreams.html")]
struct UpstreamsPage {
    frame: PageFrame,
    upstreams: Vec<UpstreamView>,
    left_out: usize,
    typed: RouteQuery,
    explained: Option<Explanation>,
    wrong: Option<(&'static str, String)>,
}

/// `GET /operator/upstreams`
pub(super) async fn page(
    operator: LoggedInOperator,
    LenientQuery(typed): LenientQuery<RouteQuery>,
) -> Response {
    let mut upstreams = upstreams::seen(operator.admin()).upstreams;
    let left_out = cut(&mut upstreams);
    let (explained, wrong) = match explained(&operator, &typed) {
        None => (None, None),
        Some(Ok(explained)) => (Some(explained), None),
        Some(Err(wrong)) => (None, Some(wrong)),
    };
    let frame = operator.frame("/upstreams");
    HtmlPage(UpstreamsPage { frame, upstreams, left_out, typed, explained, wrong }).into_response()
}

/// Keeps as many targets as fit a page; says how many it has taken away.
fn cut(upstreams: &mut [UpstreamView]) -> usize {
    let (mut room, mut left_out) = (TARGETS_MAX, 0);
    for upstream in upstreams {
        left_out += upstream.targets.len().saturating_sub(room);
        upstream.targets.truncate(room);
        room -= upstream.targets.len();
    }
    left_out
}

/// The way of a request, or which field names nothing.
fn explained(
    operator: &LoggedInOperator,
    typed: &RouteQuery,
) -> Option<Result<Explanation, (&'static str, String)>> {
    let (model, key) = (typed.model.trim(), typed.key.trim());
    if model.is_empty() && key.is_empty() {
        return None;
    }
    let parsed: Option<KeyId> = key.parse().ok();
    // Checked here to mark the key's field; the API's error does not say which of the two was not found.
    if !key.is_empty() && parsed.is_none_or(|id| operator.ledger().key_by_id(id).is_none()) {
        return Some(Err(("key", "There is no key with this id.".to_owned())));
    }
    let query = explain::ExplainQuery { model: model.to_owned(), key: parsed };
    let explained = explain::explain(operator.admin(), &query);
    Some(explained.map_err(|error| ("model", error.message().to_owned())))
}

/// The words for how a target is doing, and a class of the style sheet.
fn state(target: &TargetView) -> (String, &'static str) {
    let seconds = target.for_seconds.map(|seconds| format!(" for {seconds:.0} s"));
    let seconds = seconds.unwrap_or_default();
    match target.state {
        TargetState::Ready => ("ready".to_owned(), "good"),
        TargetState::SlowStart => {
            let percent = target.share.unwrap_or_default() * 100.0;
            (format!("slow start, {percent:.0} %"), "warn")
        }
        TargetState::Cooling => ("cooling".to_owned(), "warn"),
        TargetState::ProbeDue => ("probe due".to_owned(), "warn"),
        TargetState::Probing => ("probing".to_owned(), "warn"),
        TargetState::Busy => (format!("busy{seconds}"), "warn"),
        TargetState::Open => (format!("open{seconds}"), "bad"),
    }
}

/// True if the targets of an upstream are shown unfolded: they are few, or one is not ready.
fn is_remarkable(upstream: &UpstreamView) -> bool {
    const FEW: usize = 6;
    let ready = |target: &TargetView| {
        matches!(target.state, TargetState::Ready) && target.last_failure.is_none()
    };
    upstream.targets.len() <= FEW || !upstream.targets.iter().all(ready)
}
