//! Logging in and out.

use std::net::IpAddr;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};

use super::customer::{Answer, Customer};
use super::fields::Fields;
use super::password;
use super::{Console, playground};
use crate::config::snapshot::SignUp;
use crate::ledger::{AccountId, Login};
use crate::secret::Secret;
use crate::web::{Client, Frame, Page, Session, SessionChange, Tone};

/// What is said of a wrong address and of a wrong password alike.
const WRONG: &str = "There is no account with this e-mail address and this password.";
/// What is said when there were too many tries.
pub(super) const TOO_OFTEN: &str = "Too many tries. Wait half a minute and try again.";
/// What is said when too many passwords are compared at one time.
pub(super) const BUSY: &str = "Many people are logging in just now. Try again in a moment.";

#[derive(Template)]
#[template(path = "customer_login.html")]
struct LogIn {
    frame: Frame,
    email: String,
    may_sign_up: bool,
}

impl LogIn {
    fn of(console: &Console, session: &Session, email: &str) -> Self {
        let may_sign_up = console.config.load().console.sign_up != SignUp::Closed;
        Self { frame: console.frame(session), email: email.to_owned(), may_sign_up }
    }
}

/// `GET /login`
pub(super) async fn page(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
) -> Response {
    if Customer::of(&console, &session).is_some() {
        return Redirect::to(&console.at("")).into_response();
    }
    Page(LogIn::of(&console, &session, "")).into_response()
}

/// `POST /login`
pub(super) async fn log_in(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
    Extension(client): Extension<Client>,
    fields: Fields,
) -> Response {
    let (email, password) = (fields.text("email"), fields.exactly("password"));
    let refused = |status: StatusCode, text: &str| {
        let mut page = LogIn::of(&console, &session, email.get(..254).unwrap_or(email));
        page.frame = page.frame.saying(Tone::Bad, text);
        (status, Page(page)).into_response()
    };
    match check(&console, client.address, (email, password)).await {
        Ok(login) => {
            let begun = begin(&console, login.account);
            (Extension(begun), Redirect::to(&console.at(""))).into_response()
        }
        Err((status, text)) => refused(status, text),
    }
}

/// The login of this address and password. An address that nobody has takes the same time.
async fn check(
    console: &Console,
    address: Option<IpAddr>,
    (email, password): (&str, &str),
) -> Result<std::sync::Arc<Login>, (StatusCode, &'static str)> {
    // However it is written, it is one address.
    let name = email.to_lowercase();
    if !console.attempts.may_try(address, Some(&name)) {
        return Err((StatusCode::TOO_MANY_REQUESTS, TOO_OFTEN));
    }
    let login = console.ledger.login_by_email(email);
    let hash = login.as_ref().map(|login| login.password.as_str());
    // Nobody has a longer password; it is not hashed.
    let password = if password.len() > password::BYTES_MAX { "" } else { password };
    match (console.passwords.is_right(Secret::new(password.to_owned()), hash).await, login) {
        (Ok(true), Some(login)) => Ok(login),
        (Ok(_), _) => {
            log::warn!("somebody tried to log in to the customers' console with a wrong password");
            Err((StatusCode::FORBIDDEN, WRONG))
        }
        (Err(_), _) => Err((StatusCode::SERVICE_UNAVAILABLE, BUSY)),
    }
}

/// A new session of an account: with an id of its own, so that nobody can have chosen it.
pub(super) fn begin(console: &Console, account: AccountId) -> SessionChange {
    let lifetime = console.config.load().console.session;
    SessionChange::Begin(Session::begin(Some(account.to_string()), lifetime))
}

/// `POST /logout`: the session is refused from now on, wherever its cookie is kept, and so are the
/// keys of the playground.
pub(super) async fn log_out(State(console): State<Console>, customer: Customer) -> Answer {
    let failed = |error| customer.failed(&console, &error);
    let Session { id, until, .. } = customer.session;
    playground::end_keys(&console, &customer).await.map_err(failed)?;
    let writes = customer.writes(&console);
    writes.end_session(customer.account.id, id, until).await.map_err(failed)?;
    Ok((Extension(SessionChange::End), Redirect::to(&console.at("/login"))).into_response())
}
