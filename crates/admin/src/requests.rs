//! Finished requests: lists, single ones, and the live tail.

use std::borrow::Cow;
use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;

use super::AdminState;
use super::accounts;
use super::description::{Operation, Output};
use super::error::{ApiError, ApiResult};
use super::request::{PAGE_DEFAULT, PAGE_MAX, Params, PathNames, check_limit};
use super::value::Time;
use tollgate_ledger::{AccountId, KeyId, RequestId, TaskId};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_telemetry::request_log::{
    Feed, Live, Query, ReadError, RequestLog, RequestRecord, RingPosition, Scope, StatusFilter,
};

/// Number of simultaneous tails: each receives every record.
pub(super) const TAILS_MAX: usize = 16;
/// Interval of the keep-alives of an idle tail.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The word for the records of requests whose key was not recognised, in the place of an account.
const NOBODY: &str = "none";

/// Kind of a record.
#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "LoggedKind")]
enum LoggedKind {
    /// A finished request in the log.
    Request,
    /// A task that has reached its final state.
    Task,
}

/// One request, or the end of one task.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LoggedRequest")]
pub(super) struct LoggedView {
    /// Position in the log; increases over time.
    position: RingPosition,
    kind: LoggedKind,
    request_id: Option<RequestId>,
    task_id: Option<TaskId>,
    task_state: Option<String>,
    account_id: Option<AccountId>,
    key_id: Option<KeyId>,
    began_at: Time,
    ended_at: Time,
    route: Option<String>,
    operation: Option<String>,
    model: Option<String>,
    /// Requested model, if a fallback answered or was tried last.
    #[serde(rename = "asked_model")]
    requested_model: Option<String>,
    upstream: Option<String>,
    status: Option<u16>,
    error_code: Option<String>,
    is_error: bool,
    streamed: bool,
    usage: Option<Usage>,
    usage_source: Option<UsageSource>,
    cost: Option<Nanousd>,
    /// Cost beyond the balance of the account at that time: owed, or paid since.
    owed: Option<Nanousd>,
    ttfb_ms: Option<f64>,
    duration_ms: f64,
    bytes_in: u64,
    bytes_out: u64,
    /// Output limit, in tokens per choice, to which the request was lowered to fit the balance.
    max_tokens_clamped: Option<u64>,
}

impl From<&RequestRecord> for LoggedView {
    fn from(logged: &RequestRecord) -> Self {
        let word = |word: &String| Some(word.clone()).filter(|word| !word.is_empty());
        let settled = logged.settled;
        Self {
            position: logged.position,
            kind: if logged.task_state.is_some() { LoggedKind::Task } else { LoggedKind::Request },
            request_id: logged.request_id,
            task_id: logged.task_id,
            task_state: logged.task_state.clone(),
            account_id: logged.account_id,
            key_id: logged.key_id,
            began_at: logged.began_at().into(),
            ended_at: logged.ended_at.into(),
            route: word(&logged.route),
            operation: word(&logged.operation),
            model: word(&logged.model),
            requested_model: logged.requested_model.clone(),
            upstream: word(&logged.upstream),
            status: Some(logged.status).filter(|status| *status > 0),
            error_code: word(&logged.error_code),
            is_error: logged.is_error(),
            streamed: logged.streamed,
            usage: settled.map(|it| it.usage),
            usage_source: settled.map(|it| it.source),
            cost: settled.map(|it| it.cost),
            owed: settled.map(|it| it.owed),
            ttfb_ms: logged.ttfb.map(milliseconds),
            duration_ms: milliseconds(logged.duration),
            bytes_in: logged.bytes_in,
            bytes_out: logged.bytes_out,
            max_tokens_clamped: logged.max_tokens_clamped,
        }
    }
}

fn milliseconds(duration: Duration) -> f64 {
    // A whole number of microseconds, divided once, is written as short as it is.
    duration.as_micros() as f64 / 1e3
}

/// The account whose requests are listed, or `none` for requests without a recognised key.
#[derive(Clone, Copy)]
enum AccountFilter {
    Account(AccountId),
    Nobody,
}

impl<'de> Deserialize<'de> for AccountFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == NOBODY {
            return Ok(Self::Nobody);
        }
        text.parse().map(Self::Account).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for AccountFilter {
    fn schema_name() -> Cow<'static, str> {
        "Whose".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^(none|acct_[0-9a-f]{16})$"})
    }
}

/// A status such as `429`, or a class of them such as `4xx`.
struct Statuses(StatusFilter);

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map(Self)
            .map_err(|expected: &str| serde::de::Error::custom(format!("expected {expected}")))
    }
}

impl JsonSchema for Statuses {
    fn schema_name() -> Cow<'static, str> {
        "Statuses".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^([0-9]{3}|[0-5]xx)$"})
    }
}

/// Filter of the list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestsQuery {
    /// Requests of this account only; `none` for requests with an unknown key.
    account: Option<AccountFilter>,
    /// Requests of this key only.
    key: Option<KeyId>,
    /// Requests of this model only.
    model: Option<String>,
    /// Requests with this status or class of status only, such as `4xx`.
    status: Option<Statuses>,
    /// Only requests that have failed.
    errors: Option<bool>,
    /// `next_before` of the previous page.
    before: Option<RingPosition>,
    /// Maximum number of items; default 100.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
}

/// Filter of a tail.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TailQuery {
    /// Requests of this account only; `none` for requests with an unknown key.
    account: Option<AccountFilter>,
}

/// A page of the request log.
#[derive(Serialize, JsonSchema)]
pub(super) struct LoggedPage {
    data: Vec<LoggedView>,
    /// True if there may be older items: a page also ends when many records were read and few matched.
    has_more: bool,
    /// Value of `before` for the next page; `null` on the last.
    next_before: Option<RingPosition>,
    /// True if requests are logged at all.
    enabled: bool,
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::UnknownPosition => {
                Self::invalid("before", "No request of this list is at this position.")
            }
            ReadError::Failed(_) => Self::internal(error),
        }
    }
}

fn scope(state: &AdminState, whose: Option<AccountFilter>) -> ApiResult<Scope> {
    match whose {
        None => Ok(Scope::All),
        Some(AccountFilter::Nobody) => Ok(Scope::Unauthenticated),
        Some(AccountFilter::Account(id)) => {
            Ok(Scope::Account(accounts::find(state, &id.to_string())?.id))
        }
    }
}

/// `GET /admin/v1/requests`, newest first.
pub(super) async fn list(
    State(state): State<AdminState>,
    Params(query): Params<RequestsQuery>,
) -> ApiResult<Json<LoggedPage>> {
    let scope = scope(&state, query.account)?;
    let query = Query {
        before: query.before,
        limit: check_limit(query.limit.unwrap_or(PAGE_DEFAULT))?,
        model: query.model,
        key: query.key,
        status: query.status.map(|status| status.0),
        errors_only: query.errors.unwrap_or(false),
    };
    let page = state.requests.list(scope, query).await?;
    Ok(Json(LoggedPage {
        data: page.records.iter().map(LoggedView::from).collect(),
        has_more: page.next.is_some(),
        next_before: page.next,
        enabled: state.requests.is_on(),
    }))
}

/// `GET /admin/v1/requests/{request}`.
pub(super) async fn show(
    State(state): State<AdminState>,
    PathNames(request): PathNames<String>,
) -> ApiResult<Json<LoggedView>> {
    let missing = || ApiError::not_found("The request log has no request with this id.");
    let id: RequestId = request.parse().map_err(|_| missing())?;
    let found = state.requests.find(Scope::All, id).await?.ok_or_else(missing)?;
    Ok(Json(LoggedView::from(&found)))
}

/// Events as they come, for ever.
pub(super) struct Tail(Feed);

impl IntoResponse for Tail {
    fn into_response(self) -> Response {
        let events = futures_util::stream::unfold(self.0, |mut feed| async move {
            let live = feed.next().await?;
            Some((live, feed))
        });
        let events = events.map(|live| Ok::<_, Infallible>(event(&live)));
        Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
    }
}

impl Output for Tail {
    fn describe(operation: &mut Operation<'_>) {
        let text = json!({"type": "string"});
        operation.reply_as(StatusCode::OK, "Server-sent events.", "text/event-stream", &text);
    }
}

/// `GET /admin/v1/requests/tail`: requests as they end, as server-sent events.
pub(super) async fn tail(
    State(state): State<AdminState>,
    Params(query): Params<TailQuery>,
) -> ApiResult<Tail> {
    let scope = scope(&state, query.account)?;
    follow(&state.requests, scope).map(Tail)
}

fn follow(requests: &RequestLog, scope: Scope) -> ApiResult<Feed> {
    // Counted without a lock: two callers at once may exceed the bound by one, which costs only a copy of the
    // records.
    if requests.followers() >= TAILS_MAX {
        return Err(ApiError::too_many(format!("{TAILS_MAX} tails are open already.")));
    }
    requests.follow(scope).ok_or_else(|| {
        ApiError::not_found("The request log is switched off: see `request_log` in routes.yaml.")
    })
}

fn event(live: &Live) -> Event {
    let (name, document) = match live {
        Live::Record(logged) => ("request", json!(LoggedView::from(&**logged))),
        // A slow reader loses records instead of delaying the log for all; it is told how many.
        Live::Missed(records) => ("missed", json!({"records": records})),
    };
    Event::default().event(name).data(document.to_string())
}
