//! Pages of one account are made a few at a time: each reads a part of the ledger, and who asks for
//! many at once would have the time of everybody's calls.

use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::CustomerConsole;
use super::customer::LoggedInCustomer;
use tollgate_telemetry::metrics::Shed;
use tollgate_web_kit::{FailurePage, HtmlPage, Session};

/// Time that a page waits for other pages of its account.
const WAIT: Duration = Duration::from_secs(5);
/// `Retry-After` of a page that has waited too long, in seconds.
const RETRY: HeaderValue = HeaderValue::from_static("1");

/// Around every page: whoever is logged in waits for a turn.
pub(super) async fn take(
    State(console): State<CustomerConsole>,
    Extension(session): Extension<Session>,
    request: Request,
    next: Next,
) -> Response {
    let Some(customer) = LoggedInCustomer::from_session(&console, &session) else {
        // Guests have no account to count by; their pages read nothing of the ledger.
        return next.run(request).await;
    };
    let in_use = console.limits.account(customer.account.id.number());
    let max = console.config.load().limits.per_account.reads_max;
    // Held until the page is made; dropped with the future when the browser disconnects.
    let Some(_turn) = in_use.read_in_turn(max, WAIT).await else {
        console.metrics.request_shed(Shed::AccountReads);
        let page = FailurePage {
            frame: customer.frame(&console, "failed"),
            title: "Too many pages at once",
            text: "This account has asked for more pages than are made at one time. Reload this \
                   one in a moment."
                .to_owned(),
        };
        return (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, RETRY)], HtmlPage(page))
            .into_response();
    };
    next.run(request).await
}
