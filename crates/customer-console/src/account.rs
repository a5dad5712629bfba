//! The account: its name, how its owner logs in, and codes for credit.

use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use serde::Deserialize;

use super::customer::{LoggedInCustomer, PageResult};
use super::fields::check_short_name;
use super::password;
use super::sign_up::{CODE_BYTES_MAX, NAME_CHARS_MAX, code_in_words};
use super::{CustomerConsole, access};
use tollgate_ledger::{AccountPatch, LedgerError, Login, normal_email};
use tollgate_money::money::Nanousd;
use tollgate_types::secret::Secret;
use tollgate_web_kit::password::CHARS_MIN;
use tollgate_web_kit::{
    Client, DoneMessages, FieldErrors, FlashLevel, Form, HtmlPage, PageFrame, show,
};

#[derive(Template)]
#[template(path = "customer_account.html")]
struct AccountPage {
    frame: PageFrame,
    id: String,
    since: String,
    name: String,
    email: String,
    code: String,
    errors: FieldErrors,
    chars_min: usize,
}

impl AccountPage {
    fn new(console: &CustomerConsole, customer: &LoggedInCustomer) -> Self {
        let account = &customer.account;
        let login = console.ledger.login(account.id);
        Self {
            frame: customer.frame(console, "/account"),
            id: account.id.to_string(),
            since: show::day(&account.created_at),
            name: account.name.clone(),
            email: login.map_or(String::new(), |login| login.email.clone()),
            code: String::new(),
            errors: FieldErrors::default(),
            chars_min: CHARS_MIN,
        }
    }

    fn refused(self, status: StatusCode, field: &'static str, text: &str) -> Response {
        let mut errors = FieldErrors::default();
        errors.note(field, text);
        (status, HtmlPage(Self { errors, ..self })).into_response()
    }
}

/// Results of an account's forms, except for codes, whose sentence contains an amount.
const DONE: DoneMessages = DoneMessages(&[
    ("name", "The name was changed."),
    ("email", "The e-mail address was changed. Other sessions have ended."),
    ("password", "The password was changed. Other sessions have ended."),
]);

/// Result of the previous form, from the address.
#[derive(Default, Deserialize)]
pub(super) struct AccountQuery {
    done: Option<String>,
    amount: Option<String>,
}

/// `GET /account`
pub(super) async fn page(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Query(before): Query<AccountQuery>,
) -> Response {
    let mut page = AccountPage::new(&console, &customer);
    let amount = before.amount.and_then(|amount| amount.parse::<Nanousd>().ok());
    let text = match (before.done.as_deref(), amount) {
        (Some("code"), Some(amount)) => {
            Some(format!("{} were added to the balance.", show::money(&amount)))
        }
        (word, _) => word.and_then(|word| DONE.text(word)).map(str::to_owned),
    };
    if let Some(text) = text {
        page.frame = page.frame.with_flash(FlashLevel::Success, text);
    }
    HtmlPage(page).into_response()
}

/// Redirect to the page of the account, which confirms the action.
fn redirect(console: &CustomerConsole, done: &'static str) -> Response {
    DONE.redirect(&console.at("/account"), done)
}

/// `POST /account/name`
pub(super) async fn rename(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    form: Form,
) -> PageResult {
    let mut page = AccountPage::new(&console, &customer);
    page.name = form.text("name").to_owned();
    check_short_name(&mut page.errors, "name", &page.name, NAME_CHARS_MAX);
    if page.errors.is_any() {
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, HtmlPage(page)).into_response());
    }
    if !console.changes.take(customer.account.id) {
        let text = super::TOO_MANY_CHANGES;
        return Ok(page.refused(StatusCode::TOO_MANY_REQUESTS, "name", text));
    }
    let patch = AccountPatch { name: Some(page.name), ..AccountPatch::default() };
    let renamed = customer.writes(&console).update_account(customer.account.id, patch).await;
    renamed.map_err(|error| customer.failed(&console, &error))?;
    Ok(redirect(&console, "name"))
}

/// Requires the current password; returns an error page without it.
async fn require_login(
    console: &CustomerConsole,
    customer: &LoggedInCustomer,
    client: Client,
    field: &'static str,
    password: &str,
) -> PageResult<std::sync::Arc<Login>> {
    let page = || AccountPage::new(console, customer);
    // Who has found a session open cannot find out the password with it.
    let account = customer.account.id;
    if !console.own_passwords.take(client.address, account) {
        return Err(page().refused(StatusCode::TOO_MANY_REQUESTS, field, access::TOO_OFTEN));
    }
    let login = console.ledger.login(customer.account.id);
    let password = if password.len() > password::BYTES_MAX { "" } else { password };
    let hash = login.as_ref().map(|login| login.password.as_str());
    match (console.passwords.is_right(Secret::new(password.to_owned()), hash).await, login) {
        // It counts as well: comparing it was work, and what follows is written.
        (Ok(true), Some(login)) => Ok(login),
        (Ok(_), _) => Err(page().refused(
            StatusCode::FORBIDDEN,
            field,
            "This is not the password of the account.",
        )),
        (Err(_), _) => {
            console.own_passwords.give_back(client.address, account);
            Err(page().refused(StatusCode::SERVICE_UNAVAILABLE, field, access::BUSY))
        }
    }
}

/// Sets how the customer logs in. Every session from before is over; this browser gets a new one.
async fn set_login(
    console: &CustomerConsole,
    customer: &LoggedInCustomer,
    email: &str,
    hash: &str,
    done: &'static str,
) -> PageResult {
    let account = customer.account.id;
    match customer.writes(console).set_login(account, email, hash).await {
        Ok(_) => {
            // The ledger ends all sessions with the new login, this one included.
            let begun = access::begin(console, account);
            Ok((Extension(begun), redirect(console, done)).into_response())
        }
        Err(LedgerError::EmailTaken) => {
            let mut page = AccountPage::new(console, customer);
            page.email = email.to_owned();
            let text = "Another account has this address.";
            Ok(page.refused(StatusCode::CONFLICT, "email", text))
        }
        Err(error) => Err(customer.failed(console, &error)),
    }
}

/// `POST /account/email`
pub(super) async fn change_email(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Extension(client): Extension<Client>,
    form: Form,
) -> PageResult {
    let email = form.text("email");
    if normal_email(email).is_err() {
        let mut page = AccountPage::new(&console, &customer);
        page.email = email.to_owned();
        let text = "This is not an e-mail address, or is longer than 254 bytes.";
        return Ok(page.refused(StatusCode::UNPROCESSABLE_ENTITY, "email", text));
    }
    let password = form.exact_text("password");
    let login = require_login(&console, &customer, client, "email-password", password).await?;
    set_login(&console, &customer, email, &login.password, "email").await
}

/// `POST /account/password`
pub(super) async fn change_password(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Extension(client): Extension<Client>,
    form: Form,
) -> PageResult {
    let mut page = AccountPage::new(&console, &customer);
    let new = form.exact_text("new");
    password::check_new(&mut page.errors, "new", new, &page.email);
    if page.errors.is_any() {
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, HtmlPage(page)).into_response());
    }
    let password = form.exact_text("password");
    // After the checks of the new password: a typing error in it costs no try.
    let login = require_login(&console, &customer, client, "password", password).await?;
    match console.passwords.hash(Secret::new(new.to_owned())).await {
        Ok(hash) => set_login(&console, &customer, &login.email, &hash, "password").await,
        Err(_) => Ok(page.refused(StatusCode::SERVICE_UNAVAILABLE, "new", access::BUSY)),
    }
}

/// `POST /account/redeem`
pub(super) async fn redeem(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Extension(client): Extension<Client>,
    form: Form,
) -> PageResult {
    let mut page = AccountPage::new(&console, &customer);
    // Cut before it is shown again: the form may be as long as the guard allows.
    page.code = form.text("code").chars().take(CODE_BYTES_MAX).collect();
    if form.text("code").is_empty() || form.text("code").len() > CODE_BYTES_MAX {
        let text = "Write the code here, as it was given.";
        return Ok(page.refused(StatusCode::UNPROCESSABLE_ENTITY, "code", text));
    }
    // By address and by account: codes could be guessed from many accounts or many addresses.
    if !console.redemptions.take(client.address, customer.account.id) {
        let status = StatusCode::TOO_MANY_REQUESTS;
        return Ok(page.refused(status, "code", access::TOO_OFTEN));
    }
    let redeemed = customer.writes(&console).redeem(customer.account.id, &page.code).await;
    match redeemed {
        Ok(amount) => {
            // The amount is parsed as money before it is shown: a link cannot put other words on the page.
            let address = format!("/account?done=code&amount={}", amount.value);
            Ok(Redirect::to(&console.at(&address)).into_response())
        }
        Err(LedgerError::Code(refusal)) => {
            Ok(page.refused(StatusCode::CONFLICT, "code", code_in_words(refusal)))
        }
        Err(error) => Err(customer.failed(&console, &error)),
    }
}
