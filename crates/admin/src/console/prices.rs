//! Price groups, and the prices that calls were charged by.

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;

use super::access::LoggedInOperator;
use super::form::{self, FormRejection, FormResult};
use super::{done, rule_text};
use crate::error::ApiError;
use tollgate_ledger::{IfMatch, LedgerError, PriceGroup, PriceNote};
use tollgate_money::price::PriceVersion;
use tollgate_types::clock::UnixMs;
use tollgate_web_kit::{Form, HtmlPage, PageFrame, PriceLine, new_submit_token, price_lines, show};

/// Entry of the navigation.
const HERE: &str = "/prices";
/// Prices on the page; what is left out is in the admin API.
const ROWS_MAX: usize = 100;

#[derive(Template)]
#[template(path = "operator_prices.html")]
struct PricesPage {
    frame: PageFrame,
    form: Form,
    once: String,
    groups: Vec<GroupRow>,
    charged: Vec<PriceNote>,
    /// Number of omitted prices.
    left_out: usize,
}

/// A price group in the list.
struct GroupRow {
    name: String,
    rules: usize,
    at: UnixMs,
}

impl From<&PriceGroup> for GroupRow {
    fn from(group: &PriceGroup) -> Self {
        Self { name: group.name.clone(), rules: group.rules.len(), at: group.at }
    }
}

/// `GET /operator/prices`
pub(super) async fn page(operator: LoggedInOperator) -> Response {
    render(&operator, operator.frame(HERE), Form::default()).await
}

async fn render(operator: &LoggedInOperator, frame: PageFrame, form: Form) -> Response {
    let mut charged = match operator.ledger().prices().await {
        Ok(charged) => charged,
        Err(error) => return operator.failed(error),
    };
    let left_out = charged.len().saturating_sub(ROWS_MAX);
    charged.truncate(ROWS_MAX);
    let groups = operator.ledger().price_groups();
    let groups = groups.iter().map(|group| GroupRow::from(&**group)).collect();
    let once = new_submit_token();
    HtmlPage(PricesPage { frame, form, once, groups, charged, left_out }).into_response()
}

/// `POST /operator/prices/groups`: makes a group.
pub(super) async fn create_group(operator: LoggedInOperator, form: Form) -> Response {
    match submit_new(&operator, &form).await {
        Ok(()) => done::redirect(HERE, "group-made"),
        Err(error) => {
            let (status, form, frame) = form::refuse(form, error, operator.frame(HERE));
            (status, render(&operator, frame, form).await).into_response()
        }
    }
}

async fn submit_new(operator: &LoggedInOperator, form: &Form) -> FormResult<()> {
    let (name, rules) = (form.text("name"), rule_text::typed(form)?);
    let by = operator.by(form)?;
    // Only if there is none: a second operator's group of the same name is not overwritten.
    let made = by.set_price_group(name, rules, IfMatch::Exactly(None)).await;
    made.map_err(|error| match error {
        LedgerError::Changed => {
            FormRejection::at("name", "There is a group of this name: change that one.")
        }
        error => error.into(),
    })?;
    Ok(())
}

#[derive(Template)]
#[template(path = "operator_price_group.html")]
struct GroupPage {
    frame: PageFrame,
    form: Form,
    once: String,
    name: String,
    /// Current value that the form would replace.
    was: String,
    rules: String,
}

fn group_page(frame: PageFrame, form: Form, group: &PriceGroup) -> Response {
    let rules = rule_text::write(&group.rules);
    let page = GroupPage {
        frame,
        once: new_submit_token(),
        name: group.name.clone(),
        // A form that was refused still replaces what stood on its first page.
        was: form.text_or("was", &rules).to_owned(),
        rules,
        form,
    };
    HtmlPage(page).into_response()
}

/// `GET /operator/prices/groups/{group}`
pub(super) async fn group(operator: LoggedInOperator, Path(name): Path<String>) -> Response {
    match operator.ledger().price_group(&name) {
        Some(group) => group_page(operator.frame(HERE), Form::default(), &group),
        None => operator.failed(ApiError::not_found("There is no price group of this name.")),
    }
}

/// `POST /operator/prices/groups/{group}`
pub(super) async fn set_group(
    operator: LoggedInOperator,
    Path(name): Path<String>,
    form: Form,
) -> Response {
    let Some(group) = operator.ledger().price_group(&name) else {
        return operator.failed(ApiError::not_found("There is no price group of this name."));
    };
    match submit_group(&operator, &group, &form).await {
        Ok(()) => done::redirect(HERE, "priced"),
        Err(error) => {
            let (status, form, frame) = form::refuse(form, error, operator.frame(HERE));
            (status, group_page(frame, form, &group)).into_response()
        }
    }
}

async fn submit_group(
    operator: &LoggedInOperator,
    group: &PriceGroup,
    form: &Form,
) -> FormResult<()> {
    let (rules, was) = (rule_text::typed(form)?, rule_text::replaced(form)?);
    let by = operator.by(form)?;
    let set = by.set_price_group(&group.name, rules, IfMatch::Exactly(Some(was))).await;
    set.map_err(rule_text::refuse)?;
    Ok(())
}

#[derive(Template)]
#[template(path = "operator_price.html")]
struct PricePage {
    frame: PageFrame,
    version: PriceVersion,
    model: String,
    lines: Vec<PriceLine>,
    /// Source of the price, and the time since when it applies.
    notes: Vec<PriceNote>,
}

/// `GET /operator/prices/{version}`
pub(super) async fn one(operator: LoggedInOperator, Path(version): Path<String>) -> Response {
    let unknown = || ApiError::not_found("No call of this gateway was charged by such a price.");
    let Ok(version) = version.parse::<PriceVersion>() else { return operator.failed(unknown()) };
    let notes = match operator.ledger().price(version).await {
        Ok(notes) => notes,
        Err(error) => return operator.failed(error),
    };
    let Some(first) = notes.first() else { return operator.failed(unknown()) };
    let lines = price_lines(&serde_json::from_str(&first.pricing).unwrap_or(Value::Null));
    let (frame, model) = (operator.frame(HERE), first.model.to_string());
    HtmlPage(PricePage { frame, version, model, lines, notes }).into_response()
}
