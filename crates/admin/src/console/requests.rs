//! Finished requests: a list with filters, and the page of one request.

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::{LenientQuery, LoggedInOperator};
use crate::error::ApiError;
use tollgate_ledger::{AccountId, KeyId, RequestId};
use tollgate_telemetry::request_log::{Query, ReadError, RequestRecord, RingPosition, Scope};
use tollgate_types::clock::UnixMs;
use tollgate_web_kit::{HtmlPage, PageFrame, request_list, show};

/// Entry of the navigation.
pub(super) const HERE: &str = "/requests";
/// Requests on one page.
const PAGE: usize = 50;

/// The filter of the list, as it was typed.
#[derive(Clone, Default, Deserialize)]
pub(super) struct RequestsForm {
    #[serde(default)]
    account: String,
    #[serde(default)]
    key: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    errors: String,
    before: Option<RingPosition>,
}

#[derive(Template)]
#[template(path = "operator_requests.html")]
struct Requests {
    frame: PageFrame,
    typed: RequestsForm,
    wrong: Option<(&'static str, &'static str)>,
    rows: Vec<RequestRecord>,
    older: Option<String>,
    enabled: bool,
    /// True on the first page, where a live tail can be shown above the list.
    tail: bool,
}

/// The row of a request: the same in the list and in the tail.
#[derive(Template)]
#[template(path = "operator_request_row.html")]
pub(super) struct RequestRow<'a> {
    pub(super) base: &'a str,
    pub(super) row: &'a RequestRecord,
}

/// `GET /operator/requests`
pub(super) async fn page(
    operator: LoggedInOperator,
    LenientQuery(typed): LenientQuery<RequestsForm>,
) -> Response {
    let log = &operator.admin().requests;
    let frame = operator.frame(HERE);
    let (found, wrong) = match query(&typed) {
        Ok((scope, query)) => match log.list(scope, query).await {
            Ok(page) => (page, None),
            // Its file has gone, or the address was mistyped.
            Err(ReadError::UnknownPosition) => {
                (tollgate_telemetry::request_log::Page::default(), None)
            }
            Err(error) => return operator.failed(ApiError::internal(error)),
        },
        Err(wrong) => (tollgate_telemetry::request_log::Page::default(), Some(wrong)),
    };
    let older = found.next.map(|next| link(&typed, next));
    let is_plain = [&typed.account, &typed.key, &typed.model, &typed.status, &typed.errors]
        .iter()
        .all(|field| field.is_empty());
    // The tail has no filter: above a filtered list it would show requests that the list leaves out.
    let tail = is_plain && typed.before.is_none() && log.is_on();
    let rows = found.records;
    let page = Requests { frame, typed, wrong, rows, older, enabled: log.is_on(), tail };
    HtmlPage(page).into_response()
}

/// Parse the filters, or name the field that is invalid.
fn query(typed: &RequestsForm) -> Result<(Scope, Query), (&'static str, &'static str)> {
    let account = typed.account.trim();
    let scope = match account {
        "" => Scope::All,
        "none" => Scope::Unauthenticated,
        account => {
            let id: Result<AccountId, _> = account.parse();
            Scope::Account(id.map_err(|_| ("account", "The id of a customer, or `none`."))?)
        }
    };
    let key = match typed.key.trim() {
        "" => None,
        key => Some(key.parse::<KeyId>().map_err(|_| ("key", "The id of a key."))?),
    };
    let status = request_list::status_filter(&typed.status).map_err(|text| ("status", text))?;
    let model = Some(typed.model.trim().to_owned()).filter(|model| !model.is_empty());
    let errors_only = !typed.errors.is_empty();
    Ok((scope, Query { before: typed.before, limit: PAGE, model, key, status, errors_only }))
}

fn link(typed: &RequestsForm, before: RingPosition) -> String {
    let filter = [
        ("account", typed.account.as_str()),
        ("key", &typed.key),
        ("model", &typed.model),
        ("status", &typed.status),
        ("errors", &typed.errors),
    ];
    format!("?{}", request_list::query_before(&filter, before))
}

#[derive(Template)]
#[template(path = "operator_request.html")]
struct RequestPage {
    frame: PageFrame,
    began_at: UnixMs,
    row: RequestRecord,
}

/// `GET /operator/requests/{request}`
pub(super) async fn one(operator: LoggedInOperator, Path(request): Path<String>) -> Response {
    let unknown = || ApiError::not_found("There is no such request, or it is too old to be kept.");
    let Ok(id) = request.parse::<RequestId>() else { return operator.failed(unknown()) };
    match operator.admin().requests.find(Scope::All, id).await {
        Ok(Some(row)) => {
            let (frame, began_at) = (operator.frame(HERE), row.began_at());
            HtmlPage(RequestPage { frame, began_at, row }).into_response()
        }
        Ok(None) => operator.failed(unknown()),
        Err(error) => operator.failed(ApiError::internal(error)),
    }
}

/// The text, or a dash if it is empty.
fn word(text: &str) -> &str {
    if text.is_empty() { "–" } else { text }
}

/// The status of a request as it is shown, and a class of the style sheet.
fn status(row: &RequestRecord) -> (String, &'static str) {
    (request_list::status_text(row, str::to_owned), request_list::status_class(row))
}
