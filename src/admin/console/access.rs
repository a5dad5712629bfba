//! Logging in with a token of the admin API, and out.

use askama::Template;
use axum::Extension;
use axum::extract::{Form, FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Redirect, Response};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::time::Duration;

use super::{BASE, Console, NAV};
use crate::secret::Secret;
use crate::web::{Client, Failed, Frame, Page, Session, SessionChange, Tone};

/// How long an operator stays logged in: a working day.
const LIFETIME: Duration = Duration::from_secs(10 * 3600);
/// The page of the form.
const LOG_IN: &str = "/operator/login";

/// Somebody who may see the console; whoever may not is shown the way in.
pub(super) struct Operator {
    name: String,
    session: Session,
}

impl Operator {
    /// The frame of a page on the way `here`.
    pub(super) fn frame(&self, console: &Console, here: &'static str) -> Frame {
        console.frame(&self.session).of(self.name.clone(), NAV, here)
    }
}

impl FromRequestParts<Console> for Operator {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Response> {
        let session = parts.extensions.get::<Session>().cloned();
        let name = session.as_ref().and_then(|session| name(console, session));
        match name.zip(session) {
            Some((name, session)) => Ok(Self { name, session }),
            None => Err(Redirect::to(LOG_IN).into_response()),
        }
    }
}

/// Whose session it is, as long as that operator's token is what it was.
fn name(console: &Console, session: &Session) -> Option<String> {
    let (name, mark) = session.who.as_deref()?.rsplit_once(' ')?;
    (mark == self::mark(&console.admin.token)).then(|| name.to_owned())
}

/// What tells in a session that a token has been changed, and tells nothing of the token.
fn mark(token: &Secret) -> String {
    let digest = Sha256::digest(format!("tollgate operator {}", token.expose()));
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Template)]
#[template(path = "operator_login.html")]
struct LogIn {
    frame: Frame,
}

/// `GET /operator/login`
pub(super) async fn page(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
) -> Response {
    if name(&console, &session).is_some() {
        return Redirect::to(BASE).into_response();
    }
    Page(LogIn { frame: console.frame(&session) }).into_response()
}

#[derive(Deserialize)]
pub(super) struct Shown {
    token: String,
}

/// `POST /operator/login`
pub(super) async fn log_in(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
    client: Option<Extension<Client>>,
    Form(shown): Form<Shown>,
) -> Response {
    let refused = |status: StatusCode, text: &str| {
        let frame = console.frame(&session).saying(Tone::Bad, text);
        (status, Page(LogIn { frame })).into_response()
    };
    let address = client.and_then(|Extension(client)| client.address);
    if !console.attempts.may_try(address, None) {
        return refused(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many tries. Wait half a minute and try again.",
        );
    }
    if !console.admin.token.matches(shown.token.trim().as_bytes()) {
        log::warn!("somebody tried to log in to the operators' console with a wrong token");
        return refused(StatusCode::FORBIDDEN, "This is not a token of the admin API.");
    }
    let who = format!("admin {}", mark(&console.admin.token));
    let begun = SessionChange::Begin(Session::begin(Some(who), LIFETIME));
    (Extension(begun), Redirect::to(BASE)).into_response()
}

/// `POST /operator/logout`
pub(super) async fn log_out() -> Response {
    (Extension(SessionChange::End), Redirect::to(LOG_IN)).into_response()
}

/// Any other path.
pub(super) async fn nowhere(State(console): State<Console>, operator: Operator) -> Response {
    let page = Failed {
        frame: operator.frame(&console, "nowhere"),
        title: "There is no such page",
        text: "The address may have been mistyped, or what it named is gone.".to_owned(),
    };
    (StatusCode::NOT_FOUND, Page(page)).into_response()
}
