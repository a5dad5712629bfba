//! Balance of an account, and its statement.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Redirect};
use serde::Deserialize;

use super::CustomerConsole;
use super::customer::{LoggedInCustomer, PageResult};
use super::key_names::KeyNames;
use super::lines::StatementLine;
use tollgate_ledger::{Balance, CallName, HoldId, Seq};
use tollgate_web_kit::{HtmlPage, PageFrame, cut_page, show};

/// Lines on one page.
const LINES: usize = 50;

#[derive(Template)]
#[template(path = "customer_balance.html")]
struct Statement {
    frame: PageFrame,
    balance: Balance,
    lines: Vec<StatementLine>,
    /// The address of the next page.
    older: Option<String>,
    is_first: bool,
}

/// Filter of the statement, and position in it.
#[derive(Deserialize)]
pub(super) struct StatementQuery {
    before: Option<String>,
}

/// `GET /balance`
pub(super) async fn page(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Query(query): Query<StatementQuery>,
) -> PageResult {
    let id = customer.account.id;
    let before = query.before.map(|before| before.parse::<Seq>()).transpose();
    let before = before.map_err(|_| customer.nowhere(&console))?;
    let failed = |error| customer.failed(&console, &error);
    // One more than is shown tells whether there are more.
    let mut entries = console.ledger.entries(id, before, LINES + 1).await.map_err(failed)?;
    let account = console.ledger.durable_account(id).await.map_err(failed)?;
    let older = cut_page(&mut entries, LINES, |last| last.seq);
    let keys = KeyNames::load(&console, &customer);
    let statement = Statement {
        frame: customer.frame(&console, "/balance"),
        balance: account.map_or(customer.account.balance, |account| account.balance),
        older: older.map(|seq| console.at(&format!("/balance?before={seq}"))),
        lines: entries.iter().map(|entry| StatementLine::from_entry(entry, &keys)).collect(),
        is_first: before.is_none(),
    };
    Ok(HtmlPage(statement).into_response())
}

/// `GET /balance/{hold}`: the page of the request that a hold has paid for.
pub(super) async fn hold(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Path(hold): Path<String>,
) -> PageResult {
    let nowhere = || customer.nowhere(&console);
    let hold: HoldId = hold.parse().map_err(|_| nowhere())?;
    let name = CallName::Hold(hold, None);
    let money = console.ledger.call_money(customer.account.id, name).await;
    let money = money.map_err(|error| customer.failed(&console, &error))?.ok_or_else(nowhere)?;
    let request = format!("/requests/{}", money.call.request);
    Ok(Redirect::to(&console.at(&request)).into_response())
}
