//! Announcements of ended tasks: where they went, what came of them, and once more.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use serde::Deserialize;

use super::CustomerConsole;
use super::customer::{LoggedInCustomer, PageResult};
use super::videos;
use tollgate_ledger::{Actor, ListedTask, TaskFilter, TaskId, Webhook};
use tollgate_tasks::ReannounceOutcome;
use tollgate_web_kit::{FlashLevel, HtmlPage, PageFrame, show};

/// Example of a receiver that verifies signatures.
pub(super) const RECEIVER: &str = r#"from http.server import BaseHTTPRequestHandler, HTTPServer
from standardwebhooks import Webhook

class Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        # Raises for whatever the gateway has not signed
        event = Webhook("whsec_...").verify(body, dict(self.headers))
        print(event["type"], event["data"]["id"])
        self.send_response(204)
        self.end_headers()

HTTPServer(("0.0.0.0", 8099), Hook).serve_forever()"#;

#[derive(Template)]
#[template(path = "customer_webhooks.html")]
struct Webhooks {
    frame: PageFrame,
    rows: Vec<DeliveryRow>,
    older: Option<String>,
    is_first: bool,
    /// Secret for checking signatures, if the customer asked to see it.
    secret: Option<String>,
}

/// A row in the list of announcements.
struct DeliveryRow {
    task: TaskId,
    short: String,
    url: String,
    state: &'static str,
    badge_class: &'static str,
    /// Tries that failed since it became due.
    failed: String,
    last: String,
    next: String,
    /// True if the task has ended.
    has_ended: bool,
}

impl DeliveryRow {
    fn from_listed(listed: &ListedTask) -> Self {
        let ListedTask { task, tried } = listed;
        let has_ended = task.ended().is_some();
        let (state, badge_class) = match task.webhook {
            Webhook::Due { .. } if !has_ended => ("waits for the end", ""),
            Webhook::Due { tries: 0, .. } => ("due", "warn"),
            Webhook::Due { .. } => ("tried again", "warn"),
            Webhook::Delivered => ("delivered", "good"),
            Webhook::GivenUp => ("given up", "bad"),
            Webhook::None => ("not wanted", ""),
        };
        let (failed, next) = match task.webhook {
            Webhook::Due { tries, at } if has_ended => (tries.to_string(), show::time(&at)),
            _ => (String::new(), String::new()),
        };
        let last = tried.as_ref().map_or_else(String::new, |tried| {
            format!("{}, {}", videos::answer(tried), show::time(&tried.at))
        });
        Self {
            task: task.id(),
            short: videos::short(task),
            url: show::line(task.intent.webhook_url.as_deref().unwrap_or_default()).into_owned(),
            state,
            badge_class,
            failed,
            last,
            next,
            has_ended,
        }
    }
}

/// Position in the list.
#[derive(Default, Deserialize)]
pub(super) struct WebhooksQuery {
    after: Option<String>,
}

/// `GET /webhooks`
pub(super) async fn page(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Query(query): Query<WebhooksQuery>,
) -> PageResult {
    let frame = customer.frame(&console, "/webhooks");
    render(&console, &customer, frame, query, None).await
}

/// `POST /webhooks/secret`: the list with the secret, which no address leads to.
pub(super) async fn secret(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
) -> PageResult {
    let secret = console.tasks.webhook_secret(customer.account.id);
    let frame = customer.frame(&console, "/webhooks");
    render(&console, &customer, frame, WebhooksQuery::default(), Some(secret)).await
}

/// `POST /webhooks/{task}/replay`: once more, from the first try.
pub(super) async fn replay(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Path(task): Path<String>,
) -> PageResult {
    let account = customer.account.id;
    let id: TaskId = task.parse().map_err(|_| customer.nowhere(&console))?;
    // An announcement goes where the customer says, and costs nothing.
    let may_send = console.replays.take(account);
    let (status, level, text) = if may_send {
        let by = console.ledger.by(&Actor::Customer);
        let announced = console.tasks.announce_again(&by, account, id).await;
        match announced.map_err(|error| customer.failed(&console, &error))? {
            ReannounceOutcome::Unknown => return Err(customer.nowhere(&console)),
            ReannounceOutcome::Due => {
                (StatusCode::OK, FlashLevel::Success, "It is being sent once more.")
            }
            ReannounceOutcome::NotEnded => (
                StatusCode::CONFLICT,
                FlashLevel::Error,
                "The video has not ended: there is nothing to announce.",
            ),
            ReannounceOutcome::Nowhere => {
                (StatusCode::CONFLICT, FlashLevel::Error, "It was submitted without a webhook_url.")
            }
        }
    } else {
        let text = "Too many announcements in a short time. Wait half a minute and try again.";
        (StatusCode::TOO_MANY_REQUESTS, FlashLevel::Error, text)
    };
    let frame = customer.frame(&console, "/webhooks").with_flash(level, text);
    let page = render(&console, &customer, frame, WebhooksQuery::default(), None).await?;
    Ok((status, page).into_response())
}

async fn render(
    console: &CustomerConsole,
    customer: &LoggedInCustomer,
    frame: PageFrame,
    query: WebhooksQuery,
    secret: Option<String>,
) -> PageResult {
    let filter = Some(TaskFilter::Announced);
    let found = videos::listed(console, customer, filter, query.after.as_deref()).await?;
    let address = |after: TaskId| console.at(&format!("/webhooks?after={after}"));
    let shown = Webhooks {
        frame,
        rows: found.tasks.iter().map(DeliveryRow::from_listed).collect(),
        older: found.next_after.map(address),
        is_first: query.after.is_none(),
        secret,
    };
    Ok(HtmlPage(shown).into_response())
}
