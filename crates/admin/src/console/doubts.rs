//! Unresolved calls after a crash, and their resolution by an operator.

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::{LenientQuery, LoggedInOperator};
use super::done;
use super::form::{self, FormRejection, FormResult};
use crate::error::ApiError;
use tollgate_ledger::{AccountId, DoubtRefund, HoldId, InDoubt, Task, TaskId};
use tollgate_tasks::{Resolution, given_up_at};
use tollgate_types::clock::UnixMs;
use tollgate_web_kit::{Form, HtmlPage, PageFrame, cut_page, new_submit_token, show};

/// Entry of the navigation.
const HERE: &str = "/in-doubt";
/// Of each kind, on one page.
const PAGE: usize = 50;

/// Position in the list of holds.
#[derive(Default, Deserialize)]
pub(super) struct DoubtsQuery {
    after: Option<HoldId>,
}

#[derive(Template)]
#[template(path = "operator_doubts.html")]
struct Doubts {
    frame: PageFrame,
    form: Form,
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
pub(super) async fn page(
    operator: LoggedInOperator,
    LenientQuery(query): LenientQuery<DoubtsQuery>,
) -> Response {
    render(&operator, operator.frame(HERE), Form::default(), query).await
}

async fn render(
    operator: &LoggedInOperator,
    frame: PageFrame,
    form: Form,
    query: DoubtsQuery,
) -> Response {
    let mut holds = match operator.ledger().in_doubt().await {
        Ok(holds) => holds,
        Err(error) => return operator.failed(error),
    };
    // Oldest first: they wait for longest.
    if let Some(after) = query.after {
        let place = holds.iter().position(|doubt| doubt.call.hold == after);
        holds.drain(..place.map_or(0, |place| place + 1));
    }
    let last = cut_page(&mut holds, PAGE, |last| last.call.hold);
    let tasks = match operator.ledger().tasks_in_doubt().await {
        Ok(tasks) => tasks,
        Err(error) => return operator.failed(error),
    };
    HtmlPage(Doubts {
        frame,
        sent: form.text("about").to_owned(),
        form,
        once: new_submit_token(),
        holds,
        more_holds: last.map(|hold| format!("?after={hold}")),
        left_out: tasks.len().saturating_sub(PAGE),
        tasks: tasks.iter().take(PAGE).map(|task| TaskRow::from(&**task)).collect(),
    })
    .into_response()
}

async fn finish(operator: LoggedInOperator, form: Form, result: FormResult<()>) -> Response {
    match result {
        Ok(()) => done::redirect(HERE, "resolved"),
        Err(error) => {
            let (status, form, frame) = form::refuse(form, error, operator.frame(HERE));
            let page = render(&operator, frame, form, DoubtsQuery::default()).await;
            (status, page).into_response()
        }
    }
}

/// `POST /operator/in-doubt/holds/{hold}`: somebody has looked into it, and may give money back.
pub(super) async fn resolve_hold(
    operator: LoggedInOperator,
    Path(hold): Path<String>,
    form: Form,
) -> Response {
    let result = submit_hold_resolution(&operator, &hold, &form).await;
    finish(operator, form, result).await
}

async fn submit_hold_resolution(
    operator: &LoggedInOperator,
    hold: &str,
    form: &Form,
) -> FormResult<()> {
    let unknown = || ApiError::not_found("There is no such doubt.");
    let hold: HoldId = hold.parse().map_err(|_| unknown())?;
    let account: AccountId = form.text("account").parse().map_err(|_| unknown())?;
    let note = form::note(form, "note")?;
    if note.is_empty() {
        return Err(FormRejection::at("note", "Say what came of it."));
    }
    let refund = match form.amount("refund")?.filter(|amount| !amount.is_zero()) {
        // The form's token is the id of the refund, so that a form sent twice refunds once.
        Some(amount) => Some(DoubtRefund { id: form::require_token(form)?.to_owned(), amount }),
        None => None,
    };
    let resolved = operator.by(form)?.resolve_doubt((account, hold), note, refund).await;
    resolved.map_err(|error| form::refuse_amount("refund", error))?;
    Ok(())
}

/// `POST /operator/in-doubt/tasks/{task}`: it ends without a charge, or with one.
pub(super) async fn resolve_task(
    operator: LoggedInOperator,
    Path(task): Path<String>,
    form: Form,
) -> Response {
    let result = submit_task_resolution(&operator, &task, &form).await;
    finish(operator, form, result).await
}

async fn submit_task_resolution(
    operator: &LoggedInOperator,
    task: &str,
    form: &Form,
) -> FormResult<()> {
    let unknown = || ApiError::not_found("There is no such doubt.");
    let task: TaskId = task.parse().map_err(|_| unknown())?;
    let account: AccountId = form.text("account").parse().map_err(|_| unknown())?;
    let resolution = match form.text("resolution") {
        "void" => Resolution::Void,
        "charge" => Resolution::Charge(form.amount_above_zero("charge")?),
        _ => {
            let text = "Give the money back, or charge an amount.";
            return Err(FormRejection::at("resolution", text));
        }
    };
    let by = operator.by(form)?;
    operator.admin().tasks.resolve(&by, (account, task), resolution).await?;
    Ok(())
}
