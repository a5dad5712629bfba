//! What a crash left in doubt, and what an operator makes of it.

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::{Asked, Operator};
use super::done;
use super::form::{Fit, Typed, Unfit, at_amount, new_once};
use crate::admin::error::ApiError;
use crate::clock::UnixMs;
use crate::ledger::{AccountId, DoubtRefund, HoldId, InDoubt, Task, TaskId};
use crate::tasks::{Resolution, given_up_at};
use crate::web::{Frame, Page, show};

/// The way through the console.
const HERE: &str = "/in-doubt";
/// Of each kind, on one page.
const PAGE: usize = 50;
/// The longest note, in bytes: that of the ledger.
const NOTE_BYTES_MAX: usize = 256;

/// Which of the holds.
#[derive(Default, Deserialize)]
pub(super) struct Wanted {
    after: Option<HoldId>,
}

#[derive(Template)]
#[template(path = "operator_doubts.html")]
struct Doubts {
    frame: Frame,
    typed: Typed,
    once: String,
    /// The hold or task of the form that was sent.
    sent: String,
    holds: Vec<InDoubt>,
    more_holds: Option<String>,
    tasks: Vec<TaskRow>,
    left_out: usize,
}

struct TaskRow {
    id: TaskId,
    account: AccountId,
    model: String,
    upstream: String,
    submitted_at: UnixMs,
    given_up_at: UnixMs,
}

impl From<&Task> for TaskRow {
    fn from(task: &Task) -> Self {
        Self {
            id: task.id(),
            account: task.intent.account,
            model: task.intent.model.to_string(),
            upstream: task.upstream.clone(),
            submitted_at: task.intent.at,
            given_up_at: given_up_at(task),
        }
    }
}

/// `GET /operator/in-doubt`
pub(super) async fn page(operator: Operator, Asked(wanted): Asked<Wanted>) -> Response {
    shown(&operator, operator.frame(HERE), Typed::default(), wanted).await
}

async fn shown(operator: &Operator, frame: Frame, typed: Typed, wanted: Wanted) -> Response {
    let mut holds = match operator.ledger().in_doubt().await {
        Ok(holds) => holds,
        Err(error) => return operator.failed(error),
    };
    // Oldest first: they wait for longest.
    if let Some(after) = wanted.after {
        let place = holds.iter().position(|doubt| doubt.call.hold == after);
        holds.drain(..place.map_or(0, |place| place + 1));
    }
    let has_more = holds.len() > PAGE;
    holds.truncate(PAGE);
    let last = holds.last().filter(|_| has_more).map(|last| last.call.hold);
    let tasks = match operator.ledger().tasks_in_doubt().await {
        Ok(tasks) => tasks,
        Err(error) => return operator.failed(error),
    };
    Page(Doubts {
        frame,
        sent: typed.text("about").to_owned(),
        typed,
        once: new_once(),
        holds,
        more_holds: last.map(|hold| format!("?after={hold}")),
        left_out: tasks.len().saturating_sub(PAGE),
        tasks: tasks.iter().take(PAGE).map(|task| TaskRow::from(&**task)).collect(),
    })
    .into_response()
}

async fn ended(operator: Operator, typed: Typed, came_of_it: Fit<()>) -> Response {
    match came_of_it {
        Ok(()) => done::then(HERE, "resolved"),
        Err(unfit) => {
            let (status, typed, frame) = typed.refused(unfit, operator.frame(HERE));
            let page = shown(&operator, frame, typed, Wanted::default()).await;
            (status, page).into_response()
        }
    }
}

/// `POST /operator/in-doubt/holds/{hold}`: somebody has looked into it, and may give money back.
pub(super) async fn resolve_hold(
    operator: Operator,
    Path(hold): Path<String>,
    typed: Typed,
) -> Response {
    let came_of_it = hold_resolved(&operator, &hold, &typed).await;
    ended(operator, typed, came_of_it).await
}

async fn hold_resolved(operator: &Operator, hold: &str, typed: &Typed) -> Fit<()> {
    let unknown = || ApiError::not_found("There is no such doubt.");
    let hold: HoldId = hold.parse().map_err(|_| unknown())?;
    let account: AccountId = typed.text("account").parse().map_err(|_| unknown())?;
    let note = typed.line("note", NOTE_BYTES_MAX)?;
    if note.is_empty() {
        return Err(Unfit::Field("note", "Say what came of it.".to_owned()));
    }
    let refund = match typed.amount_or_none("refund")?.filter(|amount| !amount.is_zero()) {
        Some(amount) => Some(DoubtRefund { id: typed.once()?.to_owned(), amount }),
        None => None,
    };
    let resolved = operator.by(typed)?.resolve_doubt((account, hold), note, refund).await;
    resolved.map_err(|error| at_amount("refund", error))?;
    Ok(())
}

/// `POST /operator/in-doubt/tasks/{task}`: it ends without a charge, or with one.
pub(super) async fn resolve_task(
    operator: Operator,
    Path(task): Path<String>,
    typed: Typed,
) -> Response {
    let came_of_it = task_resolved(&operator, &task, &typed).await;
    ended(operator, typed, came_of_it).await
}

async fn task_resolved(operator: &Operator, task: &str, typed: &Typed) -> Fit<()> {
    let unknown = || ApiError::not_found("There is no such doubt.");
    let task: TaskId = task.parse().map_err(|_| unknown())?;
    let account: AccountId = typed.text("account").parse().map_err(|_| unknown())?;
    let resolution = match typed.text("resolution") {
        "void" => Resolution::Void,
        "charge" => Resolution::Charge(typed.amount("charge")?),
        _ => {
            let text = "Give the money back, or charge an amount.";
            return Err(Unfit::Field("resolution", text.to_owned()));
        }
    };
    let by = operator.by(typed)?;
    operator.admin().tasks.resolve(&by, (account, task), resolution).await?;
    Ok(())
}
