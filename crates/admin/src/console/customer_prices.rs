//! Prices of a customer that differ from the list.

use askama::Template;
use axum::response::{IntoResponse as _, Response};

use super::access::{LoggedInOperator, Visit};
use super::customer::{CustomerHead, HERE};
use super::form::{self, FormResult};
use super::{done, rule_text};
use tollgate_ledger::{Account, AccountId, AccountPrices, IfMatch};
use tollgate_web_kit::{Form, HtmlPage, PageFrame, new_submit_token, show};

#[derive(Template)]
#[template(path = "operator_customer_prices.html")]
struct CustomerPrices {
    frame: PageFrame,
    head: CustomerHead,
    form: Form,
    once: String,
    /// The group and the rules that the form would replace.
    was: (String, String),
    /// The group that the customer is in; empty for none.
    group: String,
    groups: Vec<String>,
    rules: String,
}

/// `GET /operator/customers/{account}/prices`
pub(super) async fn page(Visit { operator, account }: Visit) -> Response {
    render(&operator, operator.frame(HERE), Form::default(), &account)
}

fn render(
    operator: &LoggedInOperator,
    frame: PageFrame,
    form: Form,
    account: &Account,
) -> Response {
    let ledger = operator.ledger();
    let now = ledger.account_prices(account.id);
    let group = now.group.clone().unwrap_or_default();
    let rules = rule_text::write(&now.rules);
    // A form that was refused still replaces what stood on its first page.
    let was = (form.text_or("was_group", &group), form.text_or("was", &rules));
    let page = CustomerPrices {
        frame,
        head: CustomerHead::new(ledger, account, "/prices"),
        once: new_submit_token(),
        was: (was.0.to_owned(), was.1.to_owned()),
        group: form.text_or("group", &group).to_owned(),
        groups: ledger.price_groups().iter().map(|group| group.name.clone()).collect(),
        rules,
        form,
    };
    HtmlPage(page).into_response()
}

/// `POST /operator/customers/{account}/prices`
pub(super) async fn set(Visit { operator, account }: Visit, form: Form) -> Response {
    match submit(&operator, account.id, &form).await {
        Ok(()) => done::redirect(&format!("/customers/{}/prices", account.id), "priced"),
        Err(error) => {
            let (status, form, frame) = form::refuse(form, error, operator.frame(HERE));
            (status, render(&operator, frame, form, &account)).into_response()
        }
    }
}

async fn submit(operator: &LoggedInOperator, account: AccountId, form: &Form) -> FormResult<()> {
    let group = |field| Some(form.text(field).to_owned()).filter(|group| !group.is_empty());
    let prices = AccountPrices { group: group("group"), rules: rule_text::typed(form)? };
    let was = AccountPrices { group: group("was_group"), rules: rule_text::replaced(form)? };
    let by = operator.by(form)?;
    let set = by.set_account_prices(account, prices, IfMatch::Exactly(was)).await;
    set.map_err(rule_text::refuse)?;
    Ok(())
}
