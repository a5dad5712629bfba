//! One customer: money and limits. What else there is of a customer has tabs of its own.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};

use super::access::{LoggedInOperator, Visit};
use super::done;
use super::form::{self, FormResult};
use super::hold_rules::{self, TypedHolds};
use tollgate_ledger::{Account, AccountId, AccountPatch, Balance, Ledger, RatesPatch};
use tollgate_limits::Rates;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::secret::Secret;
use tollgate_web_kit::{Form, HtmlPage, NavItem, PageFrame, new_submit_token, show};

/// The way through the console that customers are on.
pub(super) const HERE: &str = "/customers";
/// Pages of a customer.
const TABS: &[NavItem] = &[
    NavItem { path: "", label: "Account" },
    NavItem { path: "/keys", label: "Keys" },
    NavItem { path: "/entries", label: "Entries" },
    NavItem { path: "/usage", label: "Usage" },
    NavItem { path: "/prices", label: "Prices" },
    NavItem { path: "/tasks", label: "Tasks" },
    NavItem { path: "/audit", label: "Audit" },
];
/// The longest note of a grant, in bytes: it stands before the id of the form in that of the grant.
const NOTE_BYTES_MAX: usize = 160;

/// Header of all pages of a customer.
pub(super) struct CustomerHead {
    pub(super) id: AccountId,
    pub(super) name: String,
    pub(super) created_at: UnixMs,
    pub(super) suspended: bool,
    pub(super) email: Option<String>,
    pub(super) tabs: &'static [NavItem],
    pub(super) tab: &'static str,
}

impl CustomerHead {
    pub(super) fn new(ledger: &Ledger, account: &Account, tab: &'static str) -> Self {
        Self {
            id: account.id,
            name: account.name.clone(),
            created_at: account.created_at,
            suspended: account.suspended,
            email: ledger.login(account.id).map(|login| login.email.clone()),
            tabs: TABS,
            tab,
        }
    }
}

#[derive(Template)]
#[template(path = "operator_customer.html")]
pub(super) struct CustomerPage {
    frame: PageFrame,
    head: CustomerHead,
    form: Form,
    once: String,
    /// Balance of the account, or the reason why it cannot be read now.
    figures: Result<(Balance, Nanousd), String>,
    rates: TypedRates,
    /// The credit line as it stands in its field.
    credit_limit: String,
    holds: TypedHolds,
    /// New password of the customer.
    made: Option<Secret>,
}

/// Limits as entered in the form.
struct TypedRates {
    requests_per_minute: String,
    tokens_per_minute: String,
    concurrent_requests: String,
}

impl From<Rates> for TypedRates {
    fn from(rates: Rates) -> Self {
        let text = |limit: Option<std::num::NonZeroU32>| {
            limit.map(|limit| limit.to_string()).unwrap_or_default()
        };
        Self {
            requests_per_minute: text(rates.requests_per_minute),
            tokens_per_minute: text(rates.tokens_per_minute),
            concurrent_requests: text(rates.concurrent_requests),
        }
    }
}

/// `GET /operator/customers/{account}`
pub(super) async fn page(Visit { operator, account }: Visit) -> Response {
    let frame = operator.frame(HERE);
    let page = render(&operator, frame, Form::default(), account, None).await;
    // The page is shown even then, but monitoring and scripts see that the ledger did not answer.
    let is_whole = page.0.figures.is_ok();
    let status = if is_whole { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, page).into_response()
}

/// The page of a customer; without figures where they cannot be read, since a password is shown once.
pub(super) async fn render(
    operator: &LoggedInOperator,
    frame: PageFrame,
    form: Form,
    account: Account,
    made: Option<Secret>,
) -> HtmlPage<CustomerPage> {
    let figures = match operator.ledger().durable_account(account.id).await {
        Ok(now) => {
            let now = now.as_ref().unwrap_or(&account);
            Ok((now.balance, now.written_off))
        }
        Err(error) => Err(error.to_string()),
    };
    let line = figures.as_ref().map(|(balance, _)| balance.credit).unwrap_or_default();
    let credit_limit = if line.is_zero() { String::new() } else { line.to_string() };
    HtmlPage(CustomerPage {
        frame,
        head: CustomerHead::new(operator.ledger(), &account, ""),
        form,
        once: new_submit_token(),
        figures,
        rates: operator.ledger().account_rates(account.id).into(),
        credit_limit,
        holds: TypedHolds::new(operator.ledger(), account.id),
        made,
    })
}

/// On to the customer's page if it was done; the form once more if not.
pub(super) async fn finish(
    operator: &LoggedInOperator,
    account: Account,
    form: Form,
    result: FormResult<()>,
    word: &'static str,
) -> Response {
    match result {
        Ok(()) => done::redirect(&format!("/customers/{}", account.id), word),
        Err(error) => {
            let (status, form, frame) = form::refuse(form, error, operator.frame(HERE));
            (status, render(operator, frame, form, account, None).await).into_response()
        }
    }
}

/// `POST /operator/customers/{account}/grants`
pub(super) async fn grant(Visit { operator, account }: Visit, form: Form) -> Response {
    let result = submit_grant(&operator, account.id, &form).await;
    finish(&operator, account, form, result, "granted").await
}

async fn submit_grant(
    operator: &LoggedInOperator,
    account: AccountId,
    form: &Form,
) -> FormResult<()> {
    let amount = form.amount_above_zero("amount")?;
    let id = movement_id(form.line("note", NOTE_BYTES_MAX)?, form::require_token(form)?);
    operator.by(form)?.grant(account, &id, amount).await?;
    Ok(())
}

/// `POST /operator/customers/{account}/write-offs`
pub(super) async fn write_off(Visit { operator, account }: Visit, form: Form) -> Response {
    let result = submit_write_off(&operator, account.id, &form).await;
    finish(&operator, account, form, result, "written-off").await
}

async fn submit_write_off(
    operator: &LoggedInOperator,
    account: AccountId,
    form: &Form,
) -> FormResult<()> {
    let amount = form.amount_above_zero("write_off")?;
    let note = form.line("why", NOTE_BYTES_MAX)?;
    let id = movement_id("", form::require_token(form)?);
    let given_up = operator.by(form)?.write_off(account, &id, amount, note).await;
    given_up.map_err(|error| form::refuse_amount("write_off", error))?;
    Ok(())
}

/// The id of a movement of money: what the operator notes, and what makes the form count once.
pub(super) fn movement_id(note: &str, once: &str) -> String {
    if note.is_empty() { once.to_owned() } else { format!("{note} · {once}") }
}

/// `POST /operator/customers/{account}/suspend`: suspends it or takes it up again.
pub(super) async fn suspend(visit: Visit, form: Form) -> Response {
    let suspended = form.text("to") != "resumed";
    let patch = AccountPatch { suspended: Some(suspended), ..AccountPatch::default() };
    update(visit, form, Ok(patch), if suspended { "suspended" } else { "resumed" }).await
}

/// `POST /operator/customers/{account}/name`
pub(super) async fn rename(visit: Visit, form: Form) -> Response {
    let name = form::name(&form, "name").map(|name| Some(name.to_owned()));
    let patch = name.map(|name| AccountPatch { name, ..AccountPatch::default() });
    update(visit, form, patch, "renamed").await
}

/// `POST /operator/customers/{account}/limits`
pub(super) async fn limit(visit: Visit, form: Form) -> Response {
    let patch = rates_patch(&form).map(|rates| AccountPatch { rates, ..AccountPatch::default() });
    update(visit, form, patch, "limited").await
}

fn rates_patch(form: &Form) -> FormResult<RatesPatch> {
    Ok(RatesPatch {
        requests_per_minute: Some(form.count("requests_per_minute")?),
        tokens_per_minute: Some(form.count("tokens_per_minute")?),
        concurrent_requests: Some(form.count("concurrent_requests")?),
    })
}

/// `POST /operator/customers/{account}/credit`
pub(super) async fn set_line(visit: Visit, form: Form) -> Response {
    let credit_limit = form.amount("credit_limit").map(|limit| Some(limit.unwrap_or_default()));
    let patch =
        credit_limit.map(|credit_limit| AccountPatch { credit_limit, ..AccountPatch::default() });
    update(visit, form, patch.map_err(Into::into), "credit-set").await
}

/// `POST /operator/customers/{account}/holds`
pub(super) async fn set_holds(visit: Visit, form: Form) -> Response {
    let holds = hold_rules::patch(&form);
    let patch = holds.map(|holds| AccountPatch { holds, ..AccountPatch::default() });
    update(visit, form, patch.map_err(Into::into), "holds-set").await
}

/// Writes the changes of a form to the account.
async fn update(
    Visit { operator, account }: Visit,
    form: Form,
    patch: FormResult<AccountPatch>,
    word: &'static str,
) -> Response {
    let result = match patch {
        Ok(patch) => submit(&operator, account.id, &form, patch).await,
        Err(error) => Err(error),
    };
    finish(&operator, account, form, result, word).await
}

async fn submit(
    operator: &LoggedInOperator,
    account: AccountId,
    form: &Form,
    patch: AccountPatch,
) -> FormResult<()> {
    let updated = operator.by(form)?.update_account(account, patch).await;
    // Only a credit line can be refused for its amount: what is lent already cannot be withdrawn.
    updated.map_err(|error| form::refuse_amount("credit_limit", error))?;
    Ok(())
}
