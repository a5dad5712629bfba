//! One task: how far it is, what was made, and what it cost.

use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::IntoResponse as _;

use super::record::VideoRecord;
use super::steps::{self, TaskStep};
use crate::CustomerConsole;
use crate::customer::{LoggedInCustomer, PageResult};
use crate::key_names::KeyNames;
use crate::lines::StatementLine;
use crate::units;
use crate::videos::{NO_ID, page_id};
use tollgate_ledger::CallName;
use tollgate_tasks::customer_id;
use tollgate_web_kit::{HtmlPage, PageFrame, ShowsMedia, show};

#[derive(Template)]
#[template(path = "customer_video.html")]
struct VideoPage {
    frame: PageFrame,
    /// Id in the URL of its page.
    page_id: String,
    /// Id known to the customer.
    id: String,
    record: VideoRecord,
    badge_class: &'static str,
    is_open: bool,
    model: String,
    key: String,
    steps: Vec<TaskStep>,
    webhook_url: Option<String>,
    units: Vec<(&'static str, u64)>,
    lines: Vec<StatementLine>,
}

/// `GET /videos/{id}`
pub(crate) async fn page(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Path(id): Path<String>,
) -> PageResult {
    let nowhere = || customer.nowhere(&console);
    let failed = |error| customer.failed(&console, &error);
    let account = customer.account.id;
    let task = console.ledger.task(account, &id).await.map_err(failed)?;
    let task = task.ok_or_else(nowhere)?;
    let tried = console.ledger.tried(task.id()).await.map_err(failed)?;
    let name = CallName::Hold(task.intent.hold, task.ended().map(|ended| ended.at));
    let money = console.ledger.call_money(account, name).await.map_err(failed)?;
    let keys = KeyNames::load(&console, &customer);
    let record = VideoRecord::load(&console.tasks, &task).await;
    let shown = VideoPage {
        frame: customer.frame(&console, "/videos"),
        page_id: page_id(&task),
        id: customer_id(&task).unwrap_or_else(|| NO_ID.to_owned()),
        badge_class: record.badge_class(),
        is_open: task.ended().is_none(),
        model: task.intent.model.to_string(),
        key: keys.name(task.intent.key),
        steps: steps::list(&task, &record, tried.as_ref()),
        webhook_url: task.intent.webhook_url.as_deref().map(|url| show::line(url).into_owned()),
        units: task.ended().map_or_else(Vec::new, |ended| units::all(&ended.usage)),
        lines: money.iter().flat_map(|money| StatementLine::from_call(money, &keys)).collect(),
        record,
    };
    // The video is embedded from its provider: the content policy of this page allows it.
    let page = HtmlPage(shown);
    Ok((Extension(ShowsMedia), page).into_response())
}
