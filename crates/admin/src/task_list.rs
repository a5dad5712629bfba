//! Tasks, with what became of announcing their ends.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::AdminState;
use super::accounts;
use super::error::{ApiError, ApiResult};
use super::request::{ListView, PAGE_DEFAULT, PAGE_MAX, Params, PathNames, check_limit};
use super::value::Time;
use tollgate_ledger::{
    AccountId, DeliveryAttempt, HoldId, KeyId, ListedTask, Task, TaskFilter, TaskId, TaskPhase,
    Webhook,
};
use tollgate_money::money::Nanousd;
use tollgate_web_kit::show;

/// State of a task.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename = "TaskState")]
pub(super) enum TaskStateName {
    /// It has not ended.
    Open,
    /// It is unknown whether the upstream accepted the submit.
    InDoubt,
    Succeeded,
    Failed,
    Expired,
    Cancelled,
}

impl TaskStateName {
    fn from_task(task: &Task) -> Self {
        match &task.stage {
            TaskPhase::Submitting | TaskPhase::Submitted { .. } => Self::Open,
            TaskPhase::InDoubt => Self::InDoubt,
            TaskPhase::Ended(ended) => match ended.state.as_str() {
                "succeeded" => Self::Succeeded,
                "expired" => Self::Expired,
                "cancelled" => Self::Cancelled,
                _ => Self::Failed,
            },
        }
    }

    fn filter(self) -> TaskFilter {
        let ended = |word: &str| TaskFilter::Ended(word.to_owned());
        match self {
            Self::Open => TaskFilter::Open,
            Self::InDoubt => TaskFilter::InDoubt,
            Self::Succeeded => ended("succeeded"),
            Self::Failed => ended("failed"),
            Self::Expired => ended("expired"),
            Self::Cancelled => ended("cancelled"),
        }
    }
}

/// An asynchronous task, such as a video.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Task")]
pub(super) struct TaskView {
    id: TaskId,
    account_id: AccountId,
    key_id: KeyId,
    hold: HoldId,
    model: String,
    upstream: String,
    upstream_model: String,
    /// The upstream's id of the task, once known.
    upstream_id: Option<String>,
    state: TaskStateName,
    submitted_at: Time,
    ended_at: Option<Time>,
    /// Charge to the customer; `null` until the end.
    charged: Option<Nanousd>,
    /// The task's webhook; `null` without one.
    webhook: Option<WebhookView>,
}

/// The webhook of a finished task.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Delivery")]
struct WebhookView {
    url: String,
    state: DeliveryState,
    /// Failed attempts while delivery is due.
    tries: Option<u32>,
    /// Time of the next attempt.
    next_try_at: Option<Time>,
    last_try: Option<TriedView>,
}

/// State of a webhook delivery.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum DeliveryState {
    /// The task has not ended.
    Waiting,
    /// It is tried until it is taken.
    Due,
    Delivered,
    GivenUp,
}

/// The last delivery attempt.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Try")]
struct TriedView {
    /// Status that the receiver answered; `null` without an answer.
    status: Option<u16>,
    /// Reason why the receiver was not reached.
    error: Option<String>,
    at: Time,
}

impl From<DeliveryAttempt> for TriedView {
    fn from(DeliveryAttempt { status, error, at }: DeliveryAttempt) -> Self {
        Self { status, error, at: at.into() }
    }
}

impl WebhookView {
    fn from_task(task: &Task, tried: Option<DeliveryAttempt>) -> Option<Self> {
        let url = shown(task.intent.webhook_url.as_deref()?);
        let (state, tries, next_try_at) = match (task.webhook, task.ended()) {
            (Webhook::None, _) => return None,
            (Webhook::Due { .. }, None) => (DeliveryState::Waiting, None, None),
            (Webhook::Due { tries, at }, Some(_)) => (DeliveryState::Due, Some(tries), Some(at)),
            (Webhook::Delivered, _) => (DeliveryState::Delivered, None, None),
            (Webhook::GivenUp, _) => (DeliveryState::GivenUp, None, None),
        };
        let (next_try_at, last_try) = (next_try_at.map(Time), tried.map(TriedView::from));
        Some(Self { url, state, tries, next_try_at, last_try })
    }
}

impl From<ListedTask> for TaskView {
    fn from(ListedTask { task, tried }: ListedTask) -> Self {
        let ended = task.ended();
        Self {
            id: task.id(),
            account_id: task.intent.account,
            key_id: task.intent.key,
            hold: task.intent.hold,
            model: task.intent.model.to_string(),
            upstream: task.upstream.clone(),
            upstream_model: task.upstream_model.clone(),
            upstream_id: task.upstream_id().map(shown),
            state: TaskStateName::from_task(&task),
            submitted_at: task.intent.at.into(),
            ended_at: ended.map(|ended| ended.at.into()),
            charged: ended.map(|ended| ended.charged),
            webhook: WebhookView::from_task(&task, tried),
        }
    }
}

/// The longest text of a customer's or an upstream's in the list, in characters: old records have some
/// of any length.
const TEXT_CHARS_MAX: usize = 2_048;

fn shown(text: &str) -> String {
    show::cut(text, TEXT_CHARS_MAX).into_owned()
}

/// Query of the list of tasks.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TasksQuery {
    /// Items of this account only.
    account: Option<AccountId>,
    /// Tasks in this state only.
    state: Option<TaskStateName>,
    /// Maximum number of items; default 100. There may be fewer although the list continues.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// `next_after` of the previous page.
    after: Option<TaskId>,
}

/// `GET /admin/v1/tasks`, newest first.
pub(super) async fn list(
    State(state): State<AdminState>,
    Params(query): Params<TasksQuery>,
) -> ApiResult<Json<ListView<TaskView, TaskId>>> {
    let limit = check_limit(query.limit.unwrap_or(PAGE_DEFAULT))?;
    let filter = query.state.map(TaskStateName::filter);
    let found = state.ledger.tasks(query.account, filter, query.after, limit).await?;
    let page =
        // An unknown cursor is an error: a first page in its place would make a client loop.
        found.ok_or_else(|| ApiError::invalid("after", "The list has no item with this id."))?;
    let data = page.tasks.into_iter().map(TaskView::from).collect();
    Ok(Json(ListView::new(data, page.next_after)))
}

/// One task of the account with its progress.
#[derive(Serialize, JsonSchema)]
pub(super) struct OneTask {
    #[serde(flatten)]
    task: TaskView,
    /// The task as its customer sees it.
    record: Value,
}

/// `GET /admin/v1/accounts/{account}/tasks/{task}`
pub(super) async fn show(
    State(state): State<AdminState>,
    PathNames((account, task)): PathNames<(String, String)>,
) -> ApiResult<Json<OneTask>> {
    let account = accounts::find(&state, &account)?.id;
    let unknown = || ApiError::not_found("There is no such task.");
    let id: TaskId = task.parse().map_err(|_| unknown())?;
    // 404 for a task of another account: an operator who mixes up two customers must not see it as this
    // one's.
    let found = one(&state, id).await?.filter(|found| found.task.intent.account == account);
    let found = found.ok_or_else(unknown)?;
    let record = state.tasks.shown(&found.task).await;
    // The record is our own JSON; should it not parse, the rest of the task is still worth showing.
    let record = serde_json::from_str(&record).unwrap_or_default();
    Ok(Json(OneTask { task: found.into(), record }))
}

/// The task of this id, whosever it is.
pub(super) async fn one(state: &AdminState, id: TaskId) -> ApiResult<Option<ListedTask>> {
    Ok(state.ledger.listed_task(id).await?)
}
