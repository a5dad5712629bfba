//! Tasks and the announcements of their ends: of all customers, or of one.

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::{LenientQuery, LoggedInOperator, Visit};
use super::customer::{self, CustomerHead};
use super::done;
use super::form::FormResult;
use crate::error::ApiError;
use tollgate_ledger::{AccountId, LedgerError, ListedTask, TaskId, TaskPhase, Webhook};
use tollgate_tasks::ReannounceOutcome;
use tollgate_web_kit::{Form, HtmlPage, PageFrame, new_submit_token, show};

/// Entry of the navigation.
const HERE: &str = "/webhooks";
/// Tasks on one page.
const PAGE: usize = 50;

/// Position in the list of tasks.
#[derive(Default, Deserialize)]
pub(super) struct TaskPosition {
    after: Option<TaskId>,
}

#[derive(Template)]
#[template(path = "operator_webhooks.html")]
struct Webhooks {
    frame: PageFrame,
    once: String,
    tasks: Vec<ListedTask>,
    older: Option<String>,
    /// Address that the forms return to.
    back: &'static str,
}

#[derive(Template)]
#[template(path = "operator_customer_tasks.html")]
struct CustomerWebhooksPage {
    frame: PageFrame,
    head: CustomerHead,
    once: String,
    tasks: Vec<ListedTask>,
    older: Option<String>,
    back: &'static str,
}

/// `GET /operator/webhooks`
pub(super) async fn page(
    operator: LoggedInOperator,
    LenientQuery(query): LenientQuery<TaskPosition>,
) -> Response {
    match tasks(&operator, None, query).await {
        Ok((tasks, older)) => {
            let (frame, once) = (operator.frame(HERE), new_submit_token());
            HtmlPage(Webhooks { frame, once, tasks, older, back: "all" }).into_response()
        }
        Err(error) => operator.failed(error),
    }
}

/// `GET /operator/customers/{account}/tasks`
pub(super) async fn of_customer(
    Visit { operator, account }: Visit,
    LenientQuery(query): LenientQuery<TaskPosition>,
) -> Response {
    match tasks(&operator, Some(account.id), query).await {
        Ok((tasks, older)) => {
            let head = CustomerHead::new(operator.ledger(), &account, "/tasks");
            let (frame, once) = (operator.frame(customer::HERE), new_submit_token());
            HtmlPage(CustomerWebhooksPage { frame, head, once, tasks, older, back: "customer" })
                .into_response()
        }
        Err(error) => operator.failed(error),
    }
}

async fn tasks(
    operator: &LoggedInOperator,
    account: Option<AccountId>,
    query: TaskPosition,
) -> Result<(Vec<ListedTask>, Option<String>), LedgerError> {
    let found = operator.ledger().tasks(account, None, query.after, PAGE).await;
    // `None` is a cursor that is no longer in the list: the page is empty, with a link to the first.
    let page = found?.unwrap_or_default();
    Ok((page.tasks, page.next_after.map(|id| format!("?after={id}"))))
}

/// `POST /operator/customers/{account}/tasks/{task}/announce`
pub(super) async fn announce(
    Visit { operator, account }: Visit,
    Path((_, task)): Path<(String, String)>,
    form: Form,
) -> Response {
    match submit_announcement(&operator, account.id, &task, &form).await {
        Ok(()) if form.text("back") == "customer" => {
            done::redirect(&format!("/customers/{}/tasks", account.id), "announced")
        }
        Ok(()) => done::redirect(HERE, "announced"),
        Err(error) => operator.failed(error.into_api_error()),
    }
}

async fn submit_announcement(
    operator: &LoggedInOperator,
    account: AccountId,
    task: &str,
    form: &Form,
) -> FormResult<()> {
    let unknown = || ApiError::not_found("This customer has no such task.");
    let id: TaskId = task.parse().map_err(|_| unknown())?;
    let by = operator.by(form)?;
    let refused = |text| Err(ApiError::invalid("task", text).into());
    match operator.admin().tasks.announce_again(&by, account, id).await? {
        ReannounceOutcome::Due => Ok(()),
        ReannounceOutcome::NotEnded => refused("The task has not ended."),
        ReannounceOutcome::Nowhere => refused("The task was submitted without a webhook_url."),
        ReannounceOutcome::Unknown => Err(unknown().into()),
    }
}

/// State of a task, with its class of the style sheet.
fn state(listed: &ListedTask) -> (String, &'static str) {
    match &listed.task.stage {
        TaskPhase::Submitting => ("submitting".to_owned(), ""),
        TaskPhase::InDoubt => ("in doubt".to_owned(), "warn"),
        TaskPhase::Submitted { .. } => ("running".to_owned(), ""),
        TaskPhase::Ended(ended) => {
            let badge_class = if ended.state == "succeeded" { "good" } else { "bad" };
            (ended.state.clone(), badge_class)
        }
    }
}

/// State of a task's webhook, with its class of the style sheet.
fn announcement(listed: &ListedTask) -> (String, &'static str) {
    let has_ended = listed.task.ended().is_some();
    match listed.task.webhook {
        Webhook::None => ("nobody is told".to_owned(), ""),
        Webhook::Due { .. } if !has_ended => ("at its end".to_owned(), ""),
        Webhook::Due { tries: 0, .. } => ("due".to_owned(), ""),
        Webhook::Due { tries, at } => (format!("{tries} failed, next {}", show::time(&at)), "warn"),
        Webhook::Delivered => ("delivered".to_owned(), "good"),
        Webhook::GivenUp => ("given up".to_owned(), "bad"),
    }
}

/// True if the webhook can be sent again.
fn can_be_announced(listed: &ListedTask) -> bool {
    listed.task.ended().is_some() && listed.task.intent.webhook_url.is_some()
}
