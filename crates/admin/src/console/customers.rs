//! All customers: found by name, address or id, and opened.

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::{LenientQuery, LoggedInOperator};
use super::done;
use super::form::{self, FormResult};
use crate::search;
use tollgate_ledger::{Account, AccountId, Balance, Ledger, LedgerError, ListOrder};
use tollgate_types::clock::UnixMs;
use tollgate_web_kit::{Form, HtmlPage, PageFrame, cut_page, new_submit_token, show};

/// Customers on one page.
const PAGE: usize = 50;

/// Filter of the list of customers, and position in it.
#[derive(Default, Deserialize)]
pub(super) struct CustomersQuery {
    #[serde(default)]
    q: String,
    after: Option<AccountId>,
}

#[derive(Template)]
#[template(path = "operator_customers.html")]
struct Customers {
    frame: PageFrame,
    form: Form,
    once: String,
    q: String,
    rows: Vec<CustomerRow>,
    older: Option<String>,
}

struct CustomerRow {
    id: AccountId,
    name: String,
    email: Option<String>,
    created_at: UnixMs,
    balance: Balance,
    keys: usize,
    suspended: bool,
}

impl CustomerRow {
    fn new(ledger: &Ledger, account: Account) -> Self {
        let Account { id, name, created_at, balance, suspended, .. } = account;
        let keys = ledger.key_count(id);
        let email = ledger.login(id).map(|login| login.email.clone());
        Self { id, name, email, created_at, balance, keys, suspended }
    }
}

/// `GET /operator/customers`
pub(super) async fn page(
    operator: LoggedInOperator,
    LenientQuery(query): LenientQuery<CustomersQuery>,
) -> Response {
    match render(&operator, operator.frame("/customers"), Form::default(), query).await {
        Ok(page) => page.into_response(),
        Err(error) => operator.failed(error),
    }
}

async fn render(
    operator: &LoggedInOperator,
    frame: PageFrame,
    form: Form,
    query: CustomersQuery,
) -> Result<HtmlPage<Customers>, LedgerError> {
    let ledger = operator.ledger();
    let q = query.q.trim().to_lowercase();
    let after = query.after.and_then(|id| ledger.account(id));
    // One more than is shown tells whether there are older ones.
    let (order, count) = (ListOrder::NewestFirst, PAGE + 1);
    let mut found = if q.is_empty() {
        ledger.list_accounts(order, after.as_ref(), count, |_| true)
    } else {
        let fits = move |ledger: &Ledger, account: &Account| matches(ledger, account, &q);
        search::accounts(ledger, order, after, count, fits).await
    };
    let older = cut_page(&mut found, PAGE, |account| account.id);
    let older = older.map(|last| link(&query.q, last));
    // Figures of one page only: in a fleet they come from the database.
    let found = ledger.with_figures(found).await?;
    let rows = found.into_iter().map(|account| CustomerRow::new(ledger, account)).collect();
    Ok(HtmlPage(Customers { frame, form, once: new_submit_token(), q: query.q, rows, older }))
}

fn matches(ledger: &Ledger, account: &Account, q: &str) -> bool {
    account.name.to_lowercase().contains(q)
        || account.id.to_string() == q
        || ledger.login(account.id).is_some_and(|login| login.email.contains(q))
}

fn link(q: &str, after: AccountId) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    // The search is kept in the link: without it the next page would list everybody.
    query.append_pair("q", q).append_pair("after", &after.to_string());
    format!("?{}", query.finish())
}

/// `POST /operator/customers`
pub(super) async fn create(operator: LoggedInOperator, form: Form) -> Response {
    match submit_account(&operator, &form).await {
        Ok(id) => done::redirect(&format!("/customers/{id}"), "created"),
        Err(error) => {
            let (status, form, frame) = form::refuse(form, error, operator.frame("/customers"));
            match render(&operator, frame, form, CustomersQuery::default()).await {
                Ok(page) => (status, page).into_response(),
                Err(error) => operator.failed(error),
            }
        }
    }
}

async fn submit_account(operator: &LoggedInOperator, form: &Form) -> FormResult<AccountId> {
    let name = form::name(form, "name")?;
    Ok(operator.by(form)?.create_account(name).await?.value.id)
}
