//! All customers: found by name, address or id, and opened.

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::{Asked, Operator};
use super::done;
use super::form::{Fit, Typed, new_once};
use crate::clock::UnixMs;
use crate::ledger::{Account, AccountId, Balance, Ledger, LedgerError};
use crate::web::{Frame, Page, show};

/// Customers on one page.
const PAGE: usize = 50;

/// Which of them.
#[derive(Default, Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    q: String,
    after: Option<AccountId>,
}

#[derive(Template)]
#[template(path = "operator_customers.html")]
struct Customers {
    frame: Frame,
    typed: Typed,
    once: String,
    q: String,
    rows: Vec<Row>,
    older: Option<String>,
}

struct Row {
    id: AccountId,
    name: String,
    email: Option<String>,
    created_at: UnixMs,
    balance: Balance,
    keys: usize,
    suspended: bool,
}

impl Row {
    fn of(ledger: &Ledger, account: Account) -> Self {
        let Account { id, name, created_at, balance, suspended, .. } = account;
        let keys = ledger.keys_of(id).len();
        let email = ledger.login(id).map(|login| login.email.clone());
        Self { id, name, email, created_at, balance, keys, suspended }
    }
}

/// `GET /operator/customers`
pub(super) async fn page(operator: Operator, Asked(asked): Asked<Wanted>) -> Response {
    match shown(&operator, operator.frame("/customers"), Typed::default(), asked).await {
        Ok(page) => page.into_response(),
        Err(error) => operator.failed(error),
    }
}

async fn shown(
    operator: &Operator,
    frame: Frame,
    typed: Typed,
    asked: Wanted,
) -> Result<Page<Customers>, LedgerError> {
    let ledger = operator.ledger();
    let q = asked.q.trim().to_lowercase();
    let place = |account: &Account| (account.created_at, account.id);
    let after = asked.after.and_then(|id| ledger.account(id)).map(|after| place(&after));
    let mut found = ledger.accounts();
    found.retain(|account| {
        after.is_none_or(|after| place(account) < after)
            && (q.is_empty() || fits(ledger, account, &q))
    });
    // Newest first.
    let older = found.len().checked_sub(PAGE + 1).and_then(|at| found.get(at + 1));
    let older = older.map(|last| link(&asked.q, last.id));
    let found = ledger.with_figures(found.into_iter().rev().take(PAGE).collect()).await?;
    let rows = found.into_iter().map(|account| Row::of(ledger, account)).collect();
    Ok(Page(Customers { frame, typed, once: new_once(), q: asked.q, rows, older }))
}

fn fits(ledger: &Ledger, account: &Account, q: &str) -> bool {
    account.name.to_lowercase().contains(q)
        || account.id.to_string() == q
        || ledger.login(account.id).is_some_and(|login| login.email.contains(q))
}

fn link(q: &str, after: AccountId) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("q", q).append_pair("after", &after.to_string());
    format!("?{}", query.finish())
}

/// `POST /operator/customers`
pub(super) async fn create(operator: Operator, typed: Typed) -> Response {
    match opened(&operator, &typed).await {
        Ok(id) => done::then(&format!("/customers/{id}"), "created"),
        Err(unfit) => {
            let (status, typed, frame) = typed.refused(unfit, operator.frame("/customers"));
            match shown(&operator, frame, typed, Wanted::default()).await {
                Ok(page) => (status, page).into_response(),
                Err(error) => operator.failed(error),
            }
        }
    }
}

async fn opened(operator: &Operator, typed: &Typed) -> Fit<AccountId> {
    let name = typed.name("name")?;
    Ok(operator.by(typed)?.create_account(name).await?.value.id)
}
