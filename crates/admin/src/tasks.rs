//! Tasks, as operators need them: what is in doubt, and announcements of their ends.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::AdminState;
use super::accounts;
use super::caller::Caller;
use super::error::{ApiError, ApiResult};
use super::request::PathNames;
use super::value::Time;
use tollgate_ledger::{AccountId, HoldId, Task, TaskId};
use tollgate_tasks::ReannounceOutcome;

/// Every submit whose outcome at the upstream is unknown.
#[derive(Serialize, JsonSchema)]
pub(super) struct TasksInDoubt {
    data: Vec<UnresolvedTaskView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskInDoubt")]
struct UnresolvedTaskView {
    id: TaskId,
    account_id: AccountId,
    hold: HoldId,
    model: String,
    upstream: String,
    upstream_model: String,
    submitted_at: Time,
    /// Time at which the hold is released if the task has not ended.
    given_up_at: Time,
}

impl From<&Task> for UnresolvedTaskView {
    fn from(task: &Task) -> Self {
        Self {
            id: task.id(),
            account_id: task.intent.account,
            hold: task.intent.hold,
            model: task.intent.model.to_string(),
            upstream: task.upstream.clone(),
            upstream_model: task.upstream_model.clone(),
            submitted_at: task.intent.at.into(),
            given_up_at: tollgate_tasks::given_up_at(task).into(),
        }
    }
}

/// `GET /admin/v1/tasks/in-doubt`, oldest first.
pub(super) async fn in_doubt(State(state): State<AdminState>) -> ApiResult<Json<TasksInDoubt>> {
    let tasks = state.ledger.tasks_in_doubt().await?;
    Ok(Json(TasksInDoubt {
        data: tasks.iter().map(|task| UnresolvedTaskView::from(&**task)).collect(),
    }))
}

/// Secret with which an account's receivers check the signatures of webhooks.
#[derive(Serialize, JsonSchema)]
pub(super) struct WebhookSecret {
    secret: String,
}

/// `GET /admin/v1/accounts/{account}/webhook-secret`
pub(super) async fn webhook_secret(
    State(state): State<AdminState>,
    PathNames(account): PathNames<String>,
) -> ApiResult<Json<WebhookSecret>> {
    let account = accounts::find(&state, &account)?.id;
    Ok(Json(WebhookSecret { secret: state.tasks.webhook_secret(account) }))
}

/// A task whose webhook is sent again.
#[derive(Serialize, JsonSchema)]
pub(super) struct Announcement {
    id: TaskId,
    announced: AnnouncementState,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Due")]
enum AnnouncementState {
    /// The first delivery is due now.
    Due,
}

/// `POST /admin/v1/accounts/{account}/tasks/{task}/announce`: once more, from the first try.
pub(super) async fn announce(
    State(state): State<AdminState>,
    PathNames((account, task)): PathNames<(String, String)>,
    caller: Caller,
) -> ApiResult<Json<Announcement>> {
    let account = accounts::find(&state, &account)?.id;
    let unknown = || ApiError::not_found("There is no such task.");
    let id: TaskId = task.parse().map_err(|_| unknown())?;
    match state.tasks.announce_again(&caller.by(&state), account, id).await? {
        ReannounceOutcome::Due => Ok(Json(Announcement { id, announced: AnnouncementState::Due })),
        ReannounceOutcome::NotEnded => Err(ApiError::invalid("task", "The task has not ended.")),
        ReannounceOutcome::Nowhere => {
            Err(ApiError::invalid("task", "The task was submitted without a webhook_url."))
        }
        ReannounceOutcome::Unknown => Err(unknown()),
    }
}
