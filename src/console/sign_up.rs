//! Signing up: an account of one's own, where the operator lets people have one.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};

use super::Console;
use super::access;
use super::customer::Customer;
use super::fields::{Fields, Wrong, check_name};
use super::password;
use crate::config::snapshot::SignUp as Allowed;
use crate::ledger::{Account, Actor, CodeRefusal, LedgerError, SignUp, normal_email};
use crate::money::Nanousd;
use crate::password::CHARS_MIN;
use crate::secret::Secret;
use crate::web::{Client, Frame, Page, Session, Tone};

/// The longest name of an account, in characters.
pub(super) const NAME_CHARS_MAX: usize = 80;
/// The longest code, in bytes; real ones have 29.
pub(super) const CODE_BYTES_MAX: usize = 128;

#[derive(Template)]
#[template(path = "customer_sign_up.html")]
struct SignUpPage {
    frame: Frame,
    allowed: Allowed,
    trial: Option<Nanousd>,
    name: String,
    email: String,
    code: String,
    wrong: Wrong,
    chars_min: usize,
}

impl SignUpPage {
    fn of(console: &Console, session: &Session, fields: &Fields) -> Self {
        let settings = console.config.load();
        let settings = &settings.console;
        Self {
            frame: console.frame(session),
            allowed: settings.sign_up,
            trial: Some(settings.trial_credit).filter(|credit| !credit.is_zero()),
            name: fields.text("name").to_owned(),
            email: fields.text("email").to_owned(),
            code: fields.text("code").to_owned(),
            wrong: Wrong::default(),
            chars_min: CHARS_MIN,
        }
    }

    /// The same with what is wrong with it.
    fn refused(self, status: StatusCode, wrong: Wrong) -> Response {
        (status, Page(Self { wrong, ..self })).into_response()
    }

    /// The same with a message about none of the fields.
    fn saying(self, status: StatusCode, text: &str) -> Response {
        let frame = self.frame.saying(Tone::Bad, text);
        (status, Page(Self { frame, ..self })).into_response()
    }
}

/// `GET /signup`
pub(super) async fn page(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
) -> Response {
    if Customer::of(&console, &session).is_some() {
        return Redirect::to(&console.at("")).into_response();
    }
    Page(SignUpPage::of(&console, &session, &Fields::default())).into_response()
}

/// `POST /signup`
pub(super) async fn sign_up(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
    Extension(client): Extension<Client>,
    fields: Fields,
) -> Response {
    let page = SignUpPage::of(&console, &session, &fields);
    if page.allowed == Allowed::Closed {
        return page.saying(StatusCode::FORBIDDEN, "Nobody can sign up here at the moment.");
    }
    let wrong = check(&page, fields.exactly("password"));
    if wrong.is_any() {
        return page.refused(StatusCode::UNPROCESSABLE_ENTITY, wrong);
    }
    // Both count: what one address takes of the places is not taken from the others'.
    let may = console.sign_ups.may_try(client.address, None)
        && console.all_sign_ups.may_try(None, Some("everybody"));
    if !may {
        let text = "Many people are signing up just now. Wait a few minutes and try again.";
        return page.saying(StatusCode::TOO_MANY_REQUESTS, text);
    }
    let password = Secret::new(fields.exactly("password").to_owned());
    let password = match console.passwords.hash(password).await {
        Ok(password) => password,
        Err(_) => return page.saying(StatusCode::SERVICE_UNAVAILABLE, access::BUSY),
    };
    match open(&console, &page, password).await {
        Ok(account) => {
            let begun = access::begin(&console, account.id);
            (Extension(begun), Redirect::to(&console.at(""))).into_response()
        }
        Err(error) => answer(page, &error),
    }
}

/// Says what is wrong with what was typed.
fn check(page: &SignUpPage, password: &str) -> Wrong {
    let mut wrong = Wrong::default();
    check_name(&mut wrong, "name", &page.name, NAME_CHARS_MAX);
    if normal_email(&page.email).is_err() {
        wrong.note("email", "This is not an e-mail address, or is longer than 254 bytes.");
    }
    password::check_new(&mut wrong, "password", password, &page.email);
    if page.code.len() > CODE_BYTES_MAX {
        wrong.note("code", "No code is that long.");
    } else if page.code.is_empty() && page.allowed == Allowed::Invite {
        wrong.note("code", "An invite code is needed. Ask whoever runs this gateway for one.");
    }
    wrong
}

/// Opens the account, with what it has to begin with.
async fn open(
    console: &Console,
    page: &SignUpPage,
    password: String,
) -> Result<Account, LedgerError> {
    let new = SignUp {
        name: page.name.clone(),
        email: page.email.clone(),
        password,
        invite: Some(page.code.clone()).filter(|code| !code.is_empty()),
        trial: page.trial,
    };
    console.ledger.by(&Actor::Customer).sign_up(&new).await
}

/// What the ledger refused, beside its field.
fn answer(page: SignUpPage, error: &LedgerError) -> Response {
    let mut wrong = Wrong::default();
    match error {
        LedgerError::EmailTaken => {
            wrong.note("email", "There is an account with this address. Log in instead.");
        }
        LedgerError::Code(refusal) => wrong.note("code", code_in_words(*refusal)),
        error => {
            log::error!("somebody could not sign up: {error}");
            let text = "The account could not be opened. Try again in a moment.";
            return page.saying(StatusCode::SERVICE_UNAVAILABLE, text);
        }
    }
    page.refused(StatusCode::CONFLICT, wrong)
}

/// Why a code cannot be used, for whoever typed it.
pub(super) fn code_in_words(refusal: CodeRefusal) -> &'static str {
    match refusal {
        CodeRefusal::Unknown => "There is no such code for this. Check how it was typed.",
        CodeRefusal::Revoked => "This code was taken back.",
        CodeRefusal::Expired => "This code has expired.",
        CodeRefusal::UsedUp => "This code was used as often as it can be.",
        CodeRefusal::UsedBefore => "This account has used this code before.",
    }
}
