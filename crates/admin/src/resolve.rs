//! Resolutions of unresolved calls and tasks by operators.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::accounts::{TEXT_PATTERN, check_text};
use super::caller::Caller;
use super::codes::{NOTE_PATTERN, check_note};
use super::error::{ApiError, ApiResult};
use super::request::{Body, PathNames};
use super::task_list::{self, TaskView};
use super::value::{ObjectBody, PositiveAmount};
use tollgate_ledger::key_rules::{NAME_BYTES_MAX, NOTE_CHARS_MAX};
use tollgate_ledger::{AccountId, DoubtRefund, HoldId, LedgerError, TaskId};
use tollgate_tasks::Resolution;

/// Outcome of an unresolved call.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HoldResolution {
    /// Note of the operator about the outcome.
    #[serde(default)]
    #[schemars(extend("maxLength" = NOTE_CHARS_MAX, "pattern" = NOTE_PATTERN))]
    note: String,
    /// Refund of the charge made by the recovery policy, wholly or in part.
    #[serde(default)]
    refund: Option<ObjectBody<RefundBody>>,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "DoubtRefund")]
#[serde(deny_unknown_fields)]
struct RefundBody {
    /// Id chosen by the caller. The same id is refunded once.
    #[schemars(extend("minLength" = 1, "maxLength" = NAME_BYTES_MAX, "pattern" = TEXT_PATTERN))]
    id: String,
    amount: PositiveAmount,
}

/// A call in doubt that was resolved.
#[derive(Serialize, JsonSchema)]
pub(super) struct ResolvedHold {
    hold: HoldId,
    note: String,
}

/// `POST /admin/v1/holds/{hold}/resolve`
pub(super) async fn hold(
    State(state): State<AdminState>,
    PathNames(hold): PathNames<String>,
    caller: Caller,
    Body(body): Body<HoldResolution>,
) -> ApiResult<Json<ResolvedHold>> {
    check_note(&body.note)?;
    let hold: HoldId =
        hold.parse().map_err(|_| ApiError::not_found("There is no such hold in doubt."))?;
    let refund = match body.refund {
        None => None,
        Some(ObjectBody(RefundBody { id, amount })) => {
            check_text("id", &id)?;
            Some(DoubtRefund { id, amount: amount.0 })
        }
    };
    let in_doubt = state.ledger.in_doubt().await?;
    let unresolved = in_doubt.iter().find(|doubt| doubt.call.hold == hold);
    // Where it was resolved by the same request before, the ledger knows whose it was.
    let account = unresolved.map_or(AccountId::OPERATOR, |doubt| doubt.account);
    caller.by(&state).resolve_doubt((account, hold), &body.note, refund).await?;
    Ok(Json(ResolvedHold { hold, note: body.note }))
}

/// Decision about an unresolved task.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskResolution {
    action: Action,
    /// Amount that the customer pays; only with `charge`, at most the hold.
    #[serde(default)]
    amount: Option<PositiveAmount>,
}

/// Outcome of the unresolved task.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Action {
    /// The customer pays nothing.
    Void,
    /// The customer pays `amount`.
    Charge,
}

/// `POST /admin/v1/tasks/{task}/resolve`
pub(super) async fn task(
    State(state): State<AdminState>,
    PathNames(task): PathNames<String>,
    caller: Caller,
    Body(body): Body<TaskResolution>,
) -> ApiResult<Json<TaskView>> {
    let resolution = match (body.action, body.amount) {
        (Action::Void, None) => Resolution::Void,
        (Action::Charge, Some(amount)) => Resolution::Charge(amount.0),
        (Action::Void, Some(_)) => {
            return Err(ApiError::invalid("amount", "`void` charges nothing."));
        }
        (Action::Charge, None) => {
            return Err(ApiError::invalid("amount", "`charge` needs an amount."));
        }
    };
    let unknown = || ApiError::not_found("There is no such task.");
    let id: TaskId = task.parse().map_err(|_| unknown())?;
    let found = task_list::one(&state, id).await?.ok_or_else(unknown)?;
    let account = found.task.intent.account;
    match state.tasks.resolve(&caller.by(&state), (account, id), resolution).await {
        // The only invalid value left is an amount above the hold.
        Err(LedgerError::Invalid(what)) => {
            return Err(ApiError::invalid("amount", format!("{what}.")));
        }
        done => done?,
    };
    // Read again: a repeated resolution returns the task as the first one left it.
    let now = task_list::one(&state, id).await?.ok_or_else(unknown)?;
    Ok(Json(now.into()))
}
