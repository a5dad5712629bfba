//! The account: its name, how its owner logs in, and codes for credit.

use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use serde::Deserialize;

use super::customer::{Answer, Customer};
use super::fields::{Fields, Wrong, check_name};
use super::password;
use super::sign_up::{CODE_BYTES_MAX, NAME_CHARS_MAX, code_in_words};
use super::{Console, access};
use crate::ledger::{AccountPatch, LedgerError, Login, normal_email};
use crate::money::Nanousd;
use crate::password::CHARS_MIN;
use crate::secret::Secret;
use crate::web::{Client, Frame, Page, Tone, show};

#[derive(Template)]
#[template(path = "customer_account.html")]
struct AccountPage {
    frame: Frame,
    id: String,
    since: String,
    name: String,
    email: String,
    code: String,
    wrong: Wrong,
    chars_min: usize,
}

impl AccountPage {
    fn of(console: &Console, customer: &Customer) -> Self {
        let account = &customer.account;
        let login = console.ledger.login(account.id);
        Self {
            frame: customer.frame(console, "/account"),
            id: account.id.to_string(),
            since: show::day(&account.created_at),
            name: account.name.clone(),
            email: login.map_or(String::new(), |login| login.email.clone()),
            code: String::new(),
            wrong: Wrong::default(),
            chars_min: CHARS_MIN,
        }
    }

    fn refused(self, status: StatusCode, field: &'static str, text: &str) -> Response {
        let mut wrong = Wrong::default();
        wrong.note(field, text);
        (status, Page(Self { wrong, ..self })).into_response()
    }
}

/// What was done before the page was asked for again.
#[derive(Default, Deserialize)]
pub(super) struct Before {
    done: Option<String>,
    amount: Option<String>,
}

/// `GET /account`
pub(super) async fn page(
    State(console): State<Console>,
    customer: Customer,
    Query(before): Query<Before>,
) -> Response {
    let mut page = AccountPage::of(&console, &customer);
    let amount = before.amount.and_then(|amount| amount.parse::<Nanousd>().ok());
    let done = match (before.done.as_deref(), amount) {
        (Some("name"), _) => "The name was changed.".to_owned(),
        (Some("email"), _) => {
            "The e-mail address was changed. Other sessions have ended.".to_owned()
        }
        (Some("password"), _) => "The password was changed. Other sessions have ended.".to_owned(),
        (Some("code"), Some(amount)) => {
            format!("{} were added to the balance.", show::money(&amount))
        }
        _ => return Page(page).into_response(),
    };
    page.frame = page.frame.saying(Tone::Good, done);
    Page(page).into_response()
}

fn again(console: &Console, done: &str) -> Response {
    Redirect::to(&console.at(&format!("/account?done={done}"))).into_response()
}

/// `POST /account/name`
pub(super) async fn rename(
    State(console): State<Console>,
    customer: Customer,
    fields: Fields,
) -> Answer {
    let mut page = AccountPage::of(&console, &customer);
    page.name = fields.text("name").to_owned();
    check_name(&mut page.wrong, "name", &page.name, NAME_CHARS_MAX);
    if page.wrong.is_any() {
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, Page(page)).into_response());
    }
    let patch = AccountPatch { name: Some(page.name), ..AccountPatch::default() };
    let renamed = customer.writes(&console).update_account(customer.account.id, patch).await;
    renamed.map_err(|error| customer.failed(&console, &error))?;
    Ok(again(&console, "name"))
}

/// The login of whoever shows that they know its password; else the page that says what is wrong.
async fn known(
    console: &Console,
    customer: &Customer,
    client: Client,
    (field, password): (&'static str, &str),
) -> Answer<std::sync::Arc<Login>> {
    let page = || AccountPage::of(console, customer);
    // Who has found a session open cannot find out the password with it.
    let name = customer.account.id.to_string();
    if !console.attempts.may_try(client.address, Some(&name)) {
        return Err(page().refused(StatusCode::TOO_MANY_REQUESTS, field, access::TOO_OFTEN));
    }
    let login = console.ledger.login(customer.account.id);
    let password = if password.len() > password::BYTES_MAX { "" } else { password };
    let hash = login.as_ref().map(|login| login.password.as_str());
    match (console.passwords.is_right(Secret::new(password.to_owned()), hash).await, login) {
        (Ok(true), Some(login)) => Ok(login),
        (Ok(_), _) => Err(page().refused(
            StatusCode::FORBIDDEN,
            field,
            "This is not the password of the account.",
        )),
        (Err(_), _) => Err(page().refused(StatusCode::SERVICE_UNAVAILABLE, field, access::BUSY)),
    }
}

/// Sets how the customer logs in. Every session from before is over; this browser gets a new one.
async fn set_login(
    console: &Console,
    customer: &Customer,
    (email, hash): (&str, &str),
    done: &str,
) -> Answer {
    let account = customer.account.id;
    match customer.writes(console).set_login(account, email, hash).await {
        Ok(_) => {
            let begun = access::begin(console, account);
            Ok((Extension(begun), again(console, done)).into_response())
        }
        Err(LedgerError::EmailTaken) => {
            let mut page = AccountPage::of(console, customer);
            page.email = email.to_owned();
            let text = "Another account has this address.";
            Ok(page.refused(StatusCode::CONFLICT, "email", text))
        }
        Err(error) => Err(customer.failed(console, &error)),
    }
}

/// `POST /account/email`
pub(super) async fn change_email(
    State(console): State<Console>,
    customer: Customer,
    Extension(client): Extension<Client>,
    fields: Fields,
) -> Answer {
    let email = fields.text("email");
    if normal_email(email).is_err() {
        let mut page = AccountPage::of(&console, &customer);
        page.email = email.to_owned();
        let text = "This is not an e-mail address, or is longer than 254 bytes.";
        return Ok(page.refused(StatusCode::UNPROCESSABLE_ENTITY, "email", text));
    }
    let shown = ("email-password", fields.exactly("password"));
    let login = known(&console, &customer, client, shown).await?;
    set_login(&console, &customer, (email, &login.password), "email").await
}

/// `POST /account/password`
pub(super) async fn change_password(
    State(console): State<Console>,
    customer: Customer,
    Extension(client): Extension<Client>,
    fields: Fields,
) -> Answer {
    let mut page = AccountPage::of(&console, &customer);
    let new = fields.exactly("new");
    password::check_new(&mut page.wrong, "new", new, &page.email);
    if page.wrong.is_any() {
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, Page(page)).into_response());
    }
    let shown = ("password", fields.exactly("password"));
    let login = known(&console, &customer, client, shown).await?;
    match console.passwords.hash(Secret::new(new.to_owned())).await {
        Ok(hash) => set_login(&console, &customer, (&login.email, &hash), "password").await,
        Err(_) => Ok(page.refused(StatusCode::SERVICE_UNAVAILABLE, "new", access::BUSY)),
    }
}

/// `POST /account/redeem`
pub(super) async fn redeem(
    State(console): State<Console>,
    customer: Customer,
    Extension(client): Extension<Client>,
    fields: Fields,
) -> Answer {
    let mut page = AccountPage::of(&console, &customer);
    page.code = fields.text("code").chars().take(CODE_BYTES_MAX).collect();
    if fields.text("code").is_empty() || fields.text("code").len() > CODE_BYTES_MAX {
        let text = "Write the code here, as it was given.";
        return Ok(page.refused(StatusCode::UNPROCESSABLE_ENTITY, "code", text));
    }
    let name = customer.account.id.to_string();
    if !console.redemptions.may_try(client.address, Some(&name)) {
        let status = StatusCode::TOO_MANY_REQUESTS;
        return Ok(page.refused(status, "code", access::TOO_OFTEN));
    }
    let redeemed = customer.writes(&console).redeem(customer.account.id, &page.code).await;
    match redeemed {
        Ok(amount) => Ok(again(&console, &format!("code&amount={}", amount.value))),
        Err(LedgerError::Code(refusal)) => {
            Ok(page.refused(StatusCode::CONFLICT, "code", code_in_words(refusal)))
        }
        Err(error) => Err(customer.failed(&console, &error)),
    }
}
