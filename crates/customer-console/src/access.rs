//! Logging in and out.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Redirect, Response};

use super::customer::{LoggedInCustomer, PageResult};
use super::password;
use super::{CustomerConsole, playground_keys};
use tollgate_config::snapshot::SignUpPolicy;
use tollgate_ledger::{AccountId, Login};
use tollgate_types::secret::Secret;
use tollgate_web_kit::{
    Client, DeviceId, FlashLevel, Form, HtmlPage, PageFrame, Session, SessionChange, Trying,
};

/// Message for a wrong address and a wrong password alike.
const WRONG: &str = "There is no account with this e-mail address and this password.";
/// Message after too many attempts.
pub(super) const TOO_OFTEN: &str = "Too many tries. Wait a minute and try again.";
/// Message while too many passwords are being compared.
pub(super) const BUSY: &str = "Many people are logging in just now. Try again in a moment.";

#[derive(Template)]
#[template(path = "customer_login.html")]
struct LogIn {
    frame: PageFrame,
    email: String,
    may_sign_up: bool,
}

impl LogIn {
    fn new(console: &CustomerConsole, session: &Session, email: &str) -> Self {
        let may_sign_up = console.config.load().console.sign_up != SignUpPolicy::Closed;
        Self { frame: console.frame(session), email: email.to_owned(), may_sign_up }
    }
}

/// `GET /login`
pub(super) async fn page(
    State(console): State<CustomerConsole>,
    Extension(session): Extension<Session>,
) -> Response {
    if LoggedInCustomer::from_session(&console, &session).is_some() {
        return Redirect::to(&console.at("")).into_response();
    }
    HtmlPage(LogIn::new(&console, &session, "")).into_response()
}

/// `POST /login`
pub(super) async fn log_in(
    State(console): State<CustomerConsole>,
    Extension(session): Extension<Session>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    form: Form,
) -> Response {
    let (email, password) = (form.text("email"), form.exact_text("password"));
    let refused = |status: StatusCode, text: &str| {
        // An e-mail address has at most 254 characters.
        let typed: String = email.chars().take(254).collect();
        let mut page = LogIn::new(&console, &session, &typed);
        page.frame = page.frame.with_flash(FlashLevel::Error, text);
        (status, HtmlPage(page)).into_response()
    };
    match check(&console, client, &headers, email, password).await {
        Ok((login, device)) => enter(&console, client, login.account, device),
        Err((status, text)) => refused(status, text),
    }
}

/// Redirects to the first page after the log-in, and remembers the device.
pub(super) fn enter(
    console: &CustomerConsole,
    client: Client,
    account: AccountId,
    device: Option<DeviceId>,
) -> Response {
    let device = console.devices.remember(&account.to_string(), device, client.tls);
    (device, Extension(begin(console, account)), Redirect::to(&console.at(""))).into_response()
}

/// The login of this address and password, and the device if it is known. An address that nobody has
/// takes the same time, and as many tries.
async fn check(
    console: &CustomerConsole,
    client: Client,
    headers: &HeaderMap,
    email: &str,
    password: &str,
) -> Result<(Arc<Login>, Option<DeviceId>), (StatusCode, &'static str)> {
    let login = console.ledger.login_by_email(email);
    let who = login.as_ref().map(|login| login.account.to_string());
    // A device counts for its own login only; for another address it is a stranger.
    let device = who.and_then(|who| console.devices.find(headers, &who));
    // However it is written, it is one address.
    let name = email.to_lowercase();
    let trying =
        Trying { address: client.address, name: &name, has_login: login.is_some(), device };
    // Before the hash: comparing a password is the work that a flood would make.
    let Some(tried) = console.log_ins.begin(trying) else {
        return Err((StatusCode::TOO_MANY_REQUESTS, TOO_OFTEN));
    };
    let hash = login.as_ref().map(|login| login.password.as_str());
    // Nobody has a longer password; it is not hashed.
    let password = if password.len() > password::BYTES_MAX { "" } else { password };
    // Compared even without a login, against the hash of nobody: the time must not tell which addresses
    // exist.
    match (console.passwords.is_right(Secret::new(password.to_owned()), hash).await, login) {
        (Ok(true), Some(login)) => {
            tried.was_right();
            Ok((login, device))
        }
        (Ok(_), _) => {
            tried.was_wrong();
            log::warn!("somebody tried to log in to the customers' console with a wrong password");
            Err((StatusCode::FORBIDDEN, WRONG))
        }
        (Err(_), _) => {
            // Too busy to compare: the person has not guessed wrong.
            tried.forget();
            Err((StatusCode::SERVICE_UNAVAILABLE, BUSY))
        }
    }
}

/// A new session of an account, with a new id that nobody can have chosen.
pub(super) fn begin(console: &CustomerConsole, account: AccountId) -> SessionChange {
    let lifetime = console.config.load().console.session;
    SessionChange::Begin(Session::begin(Some(account.to_string()), lifetime))
}

/// `POST /logout`: the session is refused from now on, wherever its cookie is kept, and so are the
/// keys of the playground.
pub(super) async fn log_out(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
) -> PageResult {
    let failed = |error| customer.failed(&console, &error);
    let Session { id, until, .. } = customer.session;
    // The keys first: if this fails, the customer is still logged in and can try again.
    playground_keys::end(&console, &customer).await.map_err(failed)?;
    let writes = customer.writes(&console);
    writes.end_session(customer.account.id, id, until).await.map_err(failed)?;
    Ok((Extension(SessionChange::End), Redirect::to(&console.at("/login"))).into_response())
}
