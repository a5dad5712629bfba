//! What a customer pays in the place of the list.

use askama::Template;
use axum::response::{IntoResponse as _, Response};

use super::access::{LoggedInOperator, Visit};
use super::customer::{CustomerHead, HERE};
use super::form::{self, FormError, FormResult};
use super::{done, rule_text};
use crate::ledger::{Account, AccountId, AccountPrices};
use crate::web::{Form, HtmlPage, PageFrame, new_submit_token, show};

#[derive(Template)]
#[template(path = "operator_customer_prices.html")]
struct CustomerPrices {
    frame: PageFrame,
    head: CustomerHead,
    form: Form,
    once: String,
    /// What the form would replace.
    was: String,
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
    let page = CustomerPrices {
        frame,
        head: CustomerHead::new(ledger, account, "/prices"),
        once: new_submit_token(),
        was: rule_text::mark(now.group.as_deref(), &now.rules),
        group: form.text_or("group", &group).to_owned(),
        groups: ledger.price_groups().iter().map(|group| group.name.clone()).collect(),
        rules: rule_text::write(&now.rules),
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
    let rules = rule_text::read(form.text("rules"));
    let rules = rules.map_err(|why| FormError::at("rules", why))?;
    let group = Some(form.text("group").to_owned()).filter(|group| !group.is_empty());
    let prices = AccountPrices { group, rules };
    let now = operator.ledger().account_prices(account);
    if *now != prices {
        rule_text::check_mark(form, now.group.as_deref(), &now.rules)?;
    }
    operator.by(form)?.set_account_prices(account, prices).await?;
    Ok(())
}
