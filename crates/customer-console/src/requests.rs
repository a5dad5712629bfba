//! Finished requests of the account, from the request log.

mod filter;
mod one;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};

use super::CustomerConsole;
use super::customer::{LoggedInCustomer, PageResult};
use super::key_names::KeyNames;
use super::lines;
use super::units;
use filter::{Filter, TypedFilter};
use tollgate_ledger::{Key, KeyId, RequestId, TaskId};
use tollgate_money::money::Nanousd;
use tollgate_telemetry::request_log::{self, ReadError, RequestRecord, Scope};
use tollgate_web_kit::{HtmlPage, PageFrame, request_list, show};

pub(super) use one::page as one;

/// Requests on one page.
const ROWS: usize = 50;
/// Keys to choose from.
const KEYS_MAX: usize = 200;
/// Models to choose from: any other can be typed.
const MODELS_MAX: usize = 200;

#[derive(Template)]
#[template(path = "customer_requests.html")]
struct Requests {
    frame: PageFrame,
    /// True if requests are logged at all.
    is_on: bool,
    filter: Filter,
    keys: Vec<KeyOption>,
    models: Vec<String>,
    rows: Vec<RequestRow>,
    older: Option<String>,
    is_first: bool,
}

/// One choice among the keys.
struct KeyOption {
    id: KeyId,
    name: String,
    is_chosen: bool,
}

/// One request, or the end of one task.
struct RequestRow {
    at: String,
    request: Option<(RequestId, String)>,
    position: request_log::RingPosition,
    task: Option<TaskId>,
    model: String,
    key: String,
    status: String,
    badge_class: &'static str,
    error: String,
    tokens_in: String,
    out: String,
    first_byte: String,
    per_second: String,
    cost: Option<Nanousd>,
}

impl RequestRow {
    fn from_logged(logged: &RequestRecord, keys: &KeyNames) -> Self {
        let settled = logged.settled.as_ref();
        let tokens_in = settled.map_or(0, |settled| settled.usage.input_tokens_total());
        Self {
            at: show::time(&logged.began_at()),
            request: logged.request_id.map(|id| (id, lines::short(&id))),
            position: logged.position,
            task: logged.task_id,
            model: logged.model.clone(),
            key: logged.key_id.map_or_else(String::new, |key| keys.name(key)),
            status: status(logged),
            badge_class: request_list::status_class(logged),
            error: logged.error_code.clone(),
            tokens_in: if tokens_in > 0 { show::count(&tokens_in) } else { "–".to_owned() },
            out: settled.map_or_else(|| "–".to_owned(), |settled| units::out(&settled.usage)),
            first_byte: units::first_byte(logged.ttfb),
            per_second: units::per_second(logged.output_tokens_per_second()),
            cost: settled.map(|settled| settled.cost),
        }
    }
}

/// The status that was sent, or how a task ended: all tasks are videos.
fn status(logged: &RequestRecord) -> String {
    request_list::status_text(logged, |state| format!("video {state}"))
}

/// `GET /requests`
pub(super) async fn page(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Query(query): Query<TypedFilter>,
) -> PageResult {
    let keys = KeyNames::load(&console, &customer);
    let filter = Filter::from_typed(query, &keys);
    let scope = Scope::Account(customer.account.id);
    let found = match filter.query(ROWS) {
        Some(query) => match console.requests.list(scope, query).await {
            Ok(found) => found,
            Err(ReadError::UnknownPosition) => return Err(customer.nowhere(&console)),
            Err(error @ ReadError::Failed(_)) => return Err(failed(&console, &customer, &error)),
        },
        None => request_log::Page::default(),
    };
    let status = if filter.is_wrong() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let shown = Requests {
        frame: customer.frame(&console, "/requests"),
        is_on: console.requests.is_on(),
        keys: options(&keys, filter.key),
        models: models(&console),
        rows: found.records.iter().map(|logged| RequestRow::from_logged(logged, &keys)).collect(),
        older: found.next.map(|next| console.at(&format!("/requests?{}", filter.older(next)))),
        is_first: filter.before.is_none(),
        filter,
    };
    Ok((status, HtmlPage(shown)).into_response())
}

/// Keys to select from, newest first: active keys and the selected one.
fn options(keys: &KeyNames, chosen: Option<KeyId>) -> Vec<KeyOption> {
    let all = keys.all().iter().rev();
    // The chosen key stays in the list, or the form would silently filter by another.
    let shown = all.filter(|key| !key.disabled || chosen == Some(key.id)).take(KEYS_MAX);
    let option = |key: &Arc<Key>| KeyOption {
        id: key.id,
        name: key.name.clone(),
        is_chosen: chosen == Some(key.id),
    };
    shown.map(option).collect()
}

/// The models that there are, to choose from.
fn models(console: &CustomerConsole) -> Vec<String> {
    let config = console.config.load();
    config.models.iter().take(MODELS_MAX).map(|model| model.id.to_string()).collect()
}

/// Error page for a failure of the request log.
fn failed(console: &CustomerConsole, customer: &LoggedInCustomer, error: &ReadError) -> Response {
    log::error!("a page of the customers' console failed: {error}");
    customer.broken(console)
}
