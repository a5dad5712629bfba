//! Everything that is known of one request.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::response::IntoResponse as _;
use serde::Deserialize;

use crate::CustomerConsole;
use crate::customer::{LoggedInCustomer, PageResult};
use crate::key_names::KeyNames;
use crate::lines::StatementLine;
use crate::units;
use crate::videos;
use tollgate_ledger::{CallMoney, CallName, EntryKind, RequestId, Task};
use tollgate_money::money::Nanousd;
use tollgate_money::price::PriceVersion;
use tollgate_telemetry::request_log::{RequestRecord, RingPosition, Scope};
use tollgate_web_kit::{HtmlPage, PageFrame, PriceLine, price_lines, request_list, show};

#[derive(Template)]
#[template(path = "customer_request.html")]
struct OneRequest {
    frame: PageFrame,
    id: RequestId,
    /// Record of the request log.
    logged: Option<Facts>,
    /// Entries of the ledger.
    lines: Vec<StatementLine>,
    /// Final cost.
    cost: Option<Nanousd>,
    price: Option<AppliedPrice>,
    units: Vec<(&'static str, u64)>,
    source: &'static str,
    /// The page of its task, and what the customer calls that.
    task: Option<(String, String)>,
}

/// Prices at which the request was charged.
struct AppliedPrice {
    version: PriceVersion,
    lines: Vec<PriceLine>,
}

/// Facts from the request log.
struct Facts {
    status: String,
    badge_class: &'static str,
    error: String,
    began_at: String,
    ended_at: String,
    took: Duration,
    first_byte: String,
    per_second: String,
    operation: String,
    route: String,
    model: String,
    requested_model: Option<String>,
    key: String,
    streamed: bool,
    bytes_in: u64,
    bytes_out: u64,
    max_tokens_clamped: Option<u64>,
}

impl Facts {
    fn from_logged(logged: &RequestRecord, keys: &KeyNames) -> Self {
        Self {
            status: super::status(logged),
            badge_class: request_list::status_class(logged),
            error: logged.error_code.clone(),
            began_at: show::time(&logged.began_at()),
            ended_at: show::time(&logged.ended_at),
            took: logged.duration,
            first_byte: units::first_byte(logged.ttfb),
            per_second: units::per_second(logged.output_tokens_per_second()),
            operation: logged.operation.clone(),
            route: logged.route.clone(),
            model: logged.model.clone(),
            requested_model: logged.requested_model.clone(),
            key: logged.key_id.map_or_else(String::new, |key| keys.name(key)),
            streamed: logged.streamed,
            bytes_in: logged.bytes_in,
            bytes_out: logged.bytes_out,
            max_tokens_clamped: logged.max_tokens_clamped,
        }
    }
}

/// Position in the request log, as lists pass it.
#[derive(Deserialize)]
pub(crate) struct LogPositionQuery {
    at: Option<RingPosition>,
}

/// `GET /requests/{id}`
pub(crate) async fn page(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Path(id): Path<String>,
    Query(LogPositionQuery { at }): Query<LogPositionQuery>,
) -> PageResult {
    let nowhere = || customer.nowhere(&console);
    let id: RequestId = id.parse().map_err(|_| nowhere())?;
    let scope = Scope::Account(customer.account.id);
    let logged = match at {
        Some(position) => console.requests.at(scope, position, id).await,
        None => Ok(None),
    };
    let logged = match logged {
        Ok(None) => console.requests.find(scope, id).await,
        other => other,
    };
    let logged = logged.map_err(|error| super::failed(&console, &customer, &error))?;
    let task = task(&console, &customer, logged.as_ref()).await?;
    let money = money(&console, &customer, id, logged.as_ref(), task.as_deref()).await?;
    if logged.is_none() && money.is_none() {
        return Err(nowhere());
    }
    let keys = KeyNames::load(&console, &customer);
    let settled = money.as_ref().and_then(|money| money.end.as_ref()).map(|end| &end.kind);
    let (units, source) = match settled {
        Some(EntryKind::Settlement { usage, usage_source, .. }) => {
            (units::all(usage), units::source(*usage_source))
        }
        _ => (Vec::new(), ""),
    };
    let shown = OneRequest {
        frame: customer.frame(&console, "/requests"),
        id,
        lines: money.iter().flat_map(|money| StatementLine::from_call(money, &keys)).collect(),
        cost: money.as_ref().and_then(cost),
        price: match &money {
            Some(money) => price(&console, &customer, money).await?,
            None => None,
        },
        units,
        source,
        task: task.map(|task| (videos::page_id(&task), videos::short(&task))),
        logged: logged.map(|logged| Facts::from_logged(&logged, &keys)),
    };
    Ok(HtmlPage(shown).into_response())
}

/// The task that the request started.
async fn task(
    console: &CustomerConsole,
    customer: &LoggedInCustomer,
    logged: Option<&RequestRecord>,
) -> PageResult<Option<Arc<Task>>> {
    let failed = |error| customer.failed(console, &error);
    let Some(id) = logged.and_then(|logged| logged.task_id) else { return Ok(None) };
    console.ledger.task(customer.account.id, &id.to_string()).await.map_err(failed)
}

/// Entries of the ledger for the request, searched around the end of its hold.
async fn money(
    console: &CustomerConsole,
    customer: &LoggedInCustomer,
    id: RequestId,
    logged: Option<&RequestRecord>,
    task: Option<&Task>,
) -> PageResult<Option<CallMoney>> {
    let failed = |error| customer.failed(console, &error);
    let account = customer.account.id;
    if logged.is_some_and(|logged| logged.settled.is_none() && logged.task_id.is_none()) {
        // Nothing was held for it.
        return Ok(None);
    }
    let name = match (task, logged) {
        (Some(task), _) => CallName::Hold(task.intent.hold, task.ended().map(|ended| ended.at)),
        // Its hold had not ended when it had begun to.
        (None, Some(logged)) if logged.task_id.is_none() => CallName::Request(id, logged.ended_at),
        (None, _) => CallName::Request(id, id.began_at()),
    };
    console.ledger.call_money(account, name).await.map_err(failed)
}

/// Prices recorded in the journal for a call.
async fn price(
    console: &CustomerConsole,
    customer: &LoggedInCustomer,
    money: &CallMoney,
) -> PageResult<Option<AppliedPrice>> {
    let Some(version) = money.call.price else { return Ok(None) };
    let note = console.ledger.price(version).await;
    let note = note.map_err(|error| customer.failed(console, &error))?;
    let price = note.first().and_then(|note| serde_json::from_str(&note.pricing).ok());
    Ok(price.map(|price| AppliedPrice { version, lines: price_lines(&price) }))
}

/// Charge of a finished call, less refunds.
fn cost(money: &CallMoney) -> Option<Nanousd> {
    let charged = match money.end.as_ref()?.kind {
        EntryKind::Settlement { charged, .. } | EntryKind::InDoubt { charged } => charged,
        _ => Nanousd::ZERO,
    };
    let refunds = money.refunds.iter().filter_map(|entry| match entry.kind {
        EntryKind::Refund { amount, .. } => Some(amount),
        _ => None,
    });
    Some(refunds.fold(charged, Nanousd::saturating_sub))
}
