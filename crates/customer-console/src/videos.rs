//! The account's tasks: videos that are being made or were made in the last days.

mod one;
mod record;
mod steps;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::IntoResponse as _;
use serde::Deserialize;

use super::CustomerConsole;
use super::customer::{LoggedInCustomer, PageResult};
use super::key_names::KeyNames;
use record::VideoRecord;
use tollgate_ledger::{ListedTask, Task, TaskFilter, TaskId, TaskPage};
use tollgate_money::money::Nanousd;
use tollgate_tasks::customer_id;
use tollgate_web_kit::{HtmlPage, PageFrame, show};

pub(super) use one::page as one;
pub(super) use steps::answer;

/// Tasks on one page.
const ROWS: usize = 50;
/// The states in which tasks can be listed, and what the choice is called.
const STATES: [(&str, &str); 6] = [
    ("", "All"),
    ("open", "Not ended"),
    ("succeeded", "Succeeded"),
    ("failed", "Failed"),
    ("expired", "Expired"),
    ("in_doubt", "In doubt"),
];

#[derive(Template)]
#[template(path = "customer_videos.html")]
struct Videos {
    frame: PageFrame,
    states: [(&'static str, &'static str); 6],
    state: String,
    rows: Vec<VideoRow>,
    older: Option<String>,
    is_first: bool,
}

/// A row in the list of tasks.
struct VideoRow {
    /// Id in the URL of its page.
    id: String,
    short: String,
    at: String,
    state: String,
    badge_class: &'static str,
    model: String,
    key: String,
    /// Charge; `None` while the task has not ended.
    cost: Option<Nanousd>,
    ended_at: String,
}

impl VideoRow {
    async fn load(console: &CustomerConsole, listed: &ListedTask, keys: &KeyNames) -> Self {
        let task = &listed.task;
        let record = VideoRecord::load(&console.tasks, task).await;
        Self {
            id: page_id(task),
            short: short(task),
            at: show::time(&task.intent.at),
            badge_class: record.badge_class(),
            state: record.state,
            model: task.intent.model.to_string(),
            key: keys.name(task.intent.key),
            cost: task.ended().map(|ended| ended.charged),
            ended_at: task.ended().map_or_else(String::new, |ended| show::time(&ended.at)),
        }
    }
}

/// The letters of a task's id that a list shows. Ids of family S are no longer; of the gateway's own,
/// which are random, the beginning is enough.
const SHORT_LETTERS_MAX: usize = 28;

/// The id by which the customer knows a task, as lists show it.
pub(super) fn short(task: &Task) -> String {
    match customer_id(task) {
        None => NO_ID.to_owned(),
        Some(id) if id.len() <= SHORT_LETTERS_MAX => id,
        Some(id) => id.get(..11).map_or_else(|| id.clone(), |head| format!("{head}…")),
    }
}

/// Placeholder of the id that family S gets from its upstream, before there is one.
pub(super) const NO_ID: &str = "no id yet";

/// The id below which a task has its page: the one by which the customer knows it, if there is one.
pub(super) fn page_id(task: &Task) -> String {
    customer_id(task).unwrap_or_else(|| task.id().to_string())
}

/// Filter of the list of tasks, and position in it.
#[derive(Deserialize)]
pub(super) struct VideosQuery {
    #[serde(default)]
    state: String,
    after: Option<String>,
}

/// A page of the account's tasks. The task after which it begins must belong to the account.
pub(super) async fn listed(
    console: &CustomerConsole,
    customer: &LoggedInCustomer,
    filter: Option<TaskFilter>,
    after: Option<&str>,
) -> PageResult<TaskPage> {
    let nowhere = || customer.nowhere(console);
    let failed = |error| customer.failed(console, &error);
    let account = customer.account.id;
    let after: Option<TaskId> = after.map(str::parse).transpose().map_err(|_| nowhere())?;
    if let Some(after) = after {
        let own = console.ledger.task(account, &after.to_string()).await.map_err(failed)?;
        // Checked against the account: the cursor of another one would tell that its task exists.
        own.ok_or_else(nowhere)?;
    }
    let page = console.ledger.tasks(Some(account), filter, after, ROWS).await.map_err(failed)?;
    page.ok_or_else(nowhere)
}

/// `GET /videos`
pub(super) async fn page(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Query(query): Query<VideosQuery>,
) -> PageResult {
    let filter = match query.state.as_str() {
        "" => None,
        "open" => Some(TaskFilter::Open),
        "in_doubt" => Some(TaskFilter::InDoubt),
        // Only listed states reach the database's filter.
        state if STATES.iter().any(|(name, _)| *name == state) => {
            Some(TaskFilter::Ended(state.to_owned()))
        }
        _ => return Err(customer.nowhere(&console)),
    };
    let found = listed(&console, &customer, filter, query.after.as_deref()).await?;
    let keys = KeyNames::load(&console, &customer);
    let address =
        |after: TaskId| console.at(&format!("/videos?state={}&after={after}", query.state));
    let mut rows = Vec::with_capacity(found.tasks.len());
    for listed in &found.tasks {
        rows.push(VideoRow::load(&console, listed, &keys).await);
    }
    let shown = Videos {
        frame: customer.frame(&console, "/videos"),
        states: STATES,
        rows,
        older: found.next_after.map(address),
        is_first: query.after.is_none(),
        state: query.state,
    };
    Ok(HtmlPage(shown).into_response())
}
