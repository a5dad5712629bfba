//! Requests as they end, for a script that puts them above the list.

use std::convert::Infallible;
use std::time::Duration;

use askama::Template as _;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;

use super::BASE;
use super::access::LoggedInOperator;
use super::requests::RequestRow;
use crate::requests::TAILS_MAX;
use tollgate_telemetry::request_log::{Feed, Live, Scope};

/// Interval of the keep-alives of an idle tail.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// `GET /operator/requests/tail`
pub(super) async fn follow(operator: LoggedInOperator) -> Response {
    let log = &operator.admin().requests;
    // One bound for the API and the console: each follower costs a copy of every record.
    if log.followers() >= TAILS_MAX {
        return (StatusCode::SERVICE_UNAVAILABLE, "Too many look on.").into_response();
    }
    let Some(feed) = log.follow(Scope::All) else {
        return (StatusCode::NOT_FOUND, "Requests are not kept.").into_response();
    };
    let events = stream::unfold(feed, |mut feed| async move {
        let event = next(&mut feed).await?;
        Some((Ok::<_, Infallible>(event), feed))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

async fn next(feed: &mut Feed) -> Option<Event> {
    Some(match feed.next().await? {
        Live::Record(row) => {
            let row = RequestRow { base: BASE, row: &row };
            // Escaped like every page; a row that cannot be filled is left out.
            Event::default().event("row").data(row.render().unwrap_or_default())
        }
        Live::Missed(count) => Event::default().event("missed").data(count.to_string()),
    })
}
