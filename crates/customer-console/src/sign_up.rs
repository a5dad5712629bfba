//! Signing up: an account of one's own, where the operator lets people have one.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};

use super::CustomerConsole;
use super::access;
use super::customer::LoggedInCustomer;
use super::fields::check_short_name;
use super::password;
use tollgate_config::snapshot::SignUpPolicy as Allowed;
use tollgate_ledger::{Account, Actor, CodeRefusal, LedgerError, SignUp, normal_email};
use tollgate_money::money::Nanousd;
use tollgate_types::secret::Secret;
use tollgate_web_kit::password::CHARS_MIN;
use tollgate_web_kit::{Client, FieldErrors, FlashLevel, Form, HtmlPage, PageFrame, Session};

/// The longest name that customers give an account, in characters: the head of every page shows it,
/// and has no room for the longer ones that operators may give.
pub(super) const NAME_CHARS_MAX: usize = 80;
/// The longest code, in bytes; real ones have 29.
pub(super) const CODE_BYTES_MAX: usize = 128;

#[derive(Template)]
#[template(path = "customer_sign_up.html")]
struct SignUpPage {
    frame: PageFrame,
    allowed: Allowed,
    trial: Option<Nanousd>,
    name: String,
    email: String,
    code: String,
    errors: FieldErrors,
    chars_min: usize,
}

impl SignUpPage {
    fn new(console: &CustomerConsole, session: &Session, form: &Form) -> Self {
        let settings = console.config.load();
        let settings = &settings.console;
        Self {
            frame: console.frame(session),
            allowed: settings.sign_up,
            trial: Some(settings.trial_credit).filter(|credit| !credit.is_zero()),
            name: form.text("name").to_owned(),
            email: form.text("email").to_owned(),
            code: form.text("code").to_owned(),
            errors: FieldErrors::default(),
            chars_min: CHARS_MIN,
        }
    }

    /// The page once more, with what is wrong with its fields.
    fn refused(self, status: StatusCode, errors: FieldErrors) -> Response {
        (status, HtmlPage(Self { errors, ..self })).into_response()
    }

    /// The page once more, with a message about none of its fields.
    fn with_flash(self, status: StatusCode, text: &str) -> Response {
        let frame = self.frame.with_flash(FlashLevel::Error, text);
        (status, HtmlPage(Self { frame, ..self })).into_response()
    }
}

/// `GET /signup`
pub(super) async fn page(
    State(console): State<CustomerConsole>,
    Extension(session): Extension<Session>,
) -> Response {
    if LoggedInCustomer::from_session(&console, &session).is_some() {
        return Redirect::to(&console.at("")).into_response();
    }
    HtmlPage(SignUpPage::new(&console, &session, &Form::default())).into_response()
}

/// `POST /signup`
pub(super) async fn sign_up(
    State(console): State<CustomerConsole>,
    Extension(session): Extension<Session>,
    Extension(client): Extension<Client>,
    form: Form,
) -> Response {
    let page = SignUpPage::new(&console, &session, &form);
    if page.allowed == Allowed::Closed {
        return page.with_flash(StatusCode::FORBIDDEN, "Nobody can sign up here at the moment.");
    }
    // Without the trimming of other fields: blanks may be part of a password.
    let errors = check(&page, form.exact_text("password"));
    if errors.is_any() {
        return page.refused(StatusCode::UNPROCESSABLE_ENTITY, errors);
    }
    // After the checks of the fields, so that typing errors cost no place, and before the hash, which costs
    // work.
    let Some(place) = console.sign_ups.begin(client.address) else {
        let text = "Many people are signing up just now. Wait a few minutes and try again.";
        return page.with_flash(StatusCode::TOO_MANY_REQUESTS, text);
    };
    let password = Secret::new(form.exact_text("password").to_owned());
    let password = match console.passwords.hash(password).await {
        Ok(password) => password,
        Err(_) => {
            place.give_back();
            return page.with_flash(StatusCode::SERVICE_UNAVAILABLE, access::BUSY);
        }
    };
    match open(&console, &page, password).await {
        Ok(account) => {
            place.keep();
            access::enter(&console, client, account.id, None)
        }
        Err(error) => {
            place.give_back();
            answer(page, &error)
        }
    }
}

/// Validates the form.
fn check(page: &SignUpPage, password: &str) -> FieldErrors {
    let mut errors = FieldErrors::default();
    check_short_name(&mut errors, "name", &page.name, NAME_CHARS_MAX);
    if normal_email(&page.email).is_err() {
        errors.note("email", "This is not an e-mail address, or is longer than 254 bytes.");
    }
    password::check_new(&mut errors, "password", password, &page.email);
    if page.code.len() > CODE_BYTES_MAX {
        errors.note("code", "No code is that long.");
    } else if page.code.is_empty() && page.allowed == Allowed::Invite {
        errors.note("code", "An invite code is needed. Ask whoever runs this gateway for one.");
    }
    errors
}

/// Creates the account, with its initial credit.
async fn open(
    console: &CustomerConsole,
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

/// Shows the form again, with the ledger's refusal beside its field.
fn answer(page: SignUpPage, error: &LedgerError) -> Response {
    let mut errors = FieldErrors::default();
    match error {
        LedgerError::EmailTaken => {
            errors.note("email", "There is an account with this address. Log in instead.");
        }
        LedgerError::Code(refusal) => errors.note("code", code_in_words(*refusal)),
        error => {
            log::error!("somebody could not sign up: {error}");
            let text = "The account could not be opened. Try again in a moment.";
            return page.with_flash(StatusCode::SERVICE_UNAVAILABLE, text);
        }
    }
    page.refused(StatusCode::CONFLICT, errors)
}

/// Reason why a code cannot be used, for the person who typed it.
pub(super) fn code_in_words(refusal: CodeRefusal) -> &'static str {
    match refusal {
        CodeRefusal::Unknown => "There is no such code for this. Check how it was typed.",
        CodeRefusal::Revoked => "This code was taken back.",
        CodeRefusal::Expired => "This code has expired.",
        CodeRefusal::UsedUp => "This code was used as often as it can be.",
        CodeRefusal::UsedBefore => "This account has used this code before.",
    }
}
