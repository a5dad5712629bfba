//! Tasks, as operators need them: what is in doubt, and announcements of their ends.

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::AdminState;
use super::accounts;
use super::error::{Answer, ApiError};
use crate::ledger::{Stage, TaskId};
use crate::tasks::Announced;

/// `GET /admin/v1/tasks/in-doubt`: submits of which nobody knows whether their upstream took them.
pub(super) async fn in_doubt(State(state): State<AdminState>) -> Json<Value> {
    let mut tasks = state.ledger.tasks_in_work();
    tasks.retain(|task| matches!(task.stage, Stage::InDoubt));
    tasks.sort_by_key(|task| (task.intent.at, task.id()));
    let view = |task: &std::sync::Arc<crate::ledger::Task>| {
        json!({
            "id": task.id(),
            "account_id": task.intent.account,
            "hold": task.intent.hold,
            "model": task.intent.model,
            "upstream": task.upstream,
            "upstream_model": task.upstream_model,
            "submitted_at": task.intent.at.to_rfc3339(),
            "given_up_at": crate::tasks::given_up_at(task).to_rfc3339(),
        })
    };
    Json(json!({"data": tasks.iter().map(view).collect::<Vec<_>>()}))
}

/// `GET /admin/v1/accounts/{account}/webhook-secret`
pub(super) async fn webhook_secret(
    State(state): State<AdminState>,
    Path(account): Path<String>,
) -> Answer<Json<Value>> {
    let account = accounts::find(&state, &account)?.id;
    Ok(Json(json!({"secret": state.tasks.webhook_secret(account)})))
}

/// `POST /admin/v1/accounts/{account}/tasks/{task}/announce`: once more, from the first try.
pub(super) async fn announce(
    State(state): State<AdminState>,
    Path((account, task)): Path<(String, String)>,
) -> Answer<Json<Value>> {
    let account = accounts::find(&state, &account)?.id;
    let unknown = || ApiError::not_found("There is no such task.");
    let id: TaskId = task.parse().map_err(|_| unknown())?;
    match state.tasks.announce_again(account, id).await? {
        Announced::Due => Ok(Json(json!({"id": id, "announced": "due"}))),
        Announced::NotEnded => Err(ApiError::invalid("task", "The task has not ended.")),
        Announced::Nowhere => {
            Err(ApiError::invalid("task", "The task was submitted without a webhook_url."))
        }
        Announced::Unknown => Err(unknown()),
    }
}
