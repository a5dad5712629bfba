//! Logging in with a token of the admin API, and out.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::{FromRequestParts, Query, RawPathParams, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Redirect, Response};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::form::{self, FormResult};
use super::{BASE, OperatorConsole, done, nav};
use crate::AdminState;
use crate::accounts::find;
use crate::connections;
use crate::error::ApiError;
use tollgate_ledger::{Account, Actor, ActorScope, Ledger};
use tollgate_types::secret::Secret;
use tollgate_web_kit::{
    self as web, Client, FailurePage, FlashLevel, Form, HtmlPage, PageFrame, Session, SessionChange,
};

/// Lifetime of an operator's session: a working day.
const LIFETIME: Duration = Duration::from_secs(10 * 3600);
/// Text of the page for an unknown address.
const NOWHERE: &str = "The address may have been mistyped, or what it named is gone.";
/// The page of the form.
const LOG_IN: &str = "/operator/login";

/// A logged-in operator; other visitors are redirected to the log-in.
pub(super) struct LoggedInOperator {
    console: OperatorConsole,
    name: String,
    session: Session,
    /// Result of the previous form, from the address.
    done: Option<&'static str>,
}

impl LoggedInOperator {
    /// State of the admin API.
    pub(super) fn admin(&self) -> &AdminState {
        &self.console.admin
    }

    /// The ledger that the operator reads and writes.
    pub(super) fn ledger(&self) -> &Arc<Ledger> {
        &self.console.admin.ledger
    }

    /// Writes of this operator that a form asks for: sent twice, it is done once.
    pub(super) fn by(&self, form: &Form) -> FormResult<ActorScope<'_>> {
        Ok(self.ledger().by(&self.actor()).with_idempotency_key(form::idempotency(form)?))
    }

    /// The operator as the journal records it.
    pub(super) fn actor(&self) -> Actor {
        Actor::operator(&self.name)
    }

    /// The frame of a page on the way `here`.
    pub(super) fn frame(&self, here: &'static str) -> PageFrame {
        let frame =
            self.console.frame(&self.session).logged_in(self.name.clone(), nav(self.admin()), here);
        match self.done {
            Some(text) => frame.with_flash(FlashLevel::Success, text),
            None => frame,
        }
    }

    /// Page that shows an error.
    pub(super) fn failed(&self, error: impl Into<ApiError>) -> Response {
        let error = error.into();
        let title = match error.status() {
            StatusCode::NOT_FOUND => "There is no such page",
            status if status.is_server_error() => "The gateway failed",
            _ => "This cannot be done",
        };
        let text = error.message().to_owned();
        let page = FailurePage { frame: self.frame("nowhere"), title, text };
        (error.status(), HtmlPage(page)).into_response()
    }
}

impl FromRequestParts<OperatorConsole> for LoggedInOperator {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        console: &OperatorConsole,
    ) -> Result<Self, Response> {
        let session = parts.extensions.get::<Session>().cloned();
        let name = session.as_ref().and_then(|session| name(console, session));
        match name.zip(session) {
            Some((name, session)) => {
                connections::mark_authenticated(&parts.extensions);
                let done = done::DONE.text_in(parts.uri.query());
                Ok(Self { console: console.clone(), name, session, done })
            }
            // A script that asks for a part of a page would put the log-in page in its place.
            None if parts.headers.contains_key("hx-request") => {
                Err((StatusCode::UNAUTHORIZED, [("hx-redirect", LOG_IN)]).into_response())
            }
            None => Err(Redirect::to(LOG_IN).into_response()),
        }
    }
}

/// An operator and the customer named in the path; 404 if the customer does not exist.
pub(super) struct Visit {
    pub(super) operator: LoggedInOperator,
    pub(super) account: Account,
}

impl FromRequestParts<OperatorConsole> for Visit {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        console: &OperatorConsole,
    ) -> Result<Self, Response> {
        // Log-in first: a guest must not learn which accounts there are.
        let operator = LoggedInOperator::from_request_parts(parts, console).await?;
        let named = RawPathParams::from_request_parts(parts, console).await;
        let named = named.map_err(IntoResponse::into_response)?;
        // By name: some paths have a second parameter behind the account.
        let id = named.iter().find(|(name, _)| *name == "account").map_or("", |(_, id)| id);
        match find(operator.admin(), id) {
            Ok(account) => Ok(Self { operator, account }),
            Err(error) => Err(operator.failed(error)),
        }
    }
}

/// Name of the session's operator; `None` once that operator's token has changed.
fn name(console: &OperatorConsole, session: &Session) -> Option<String> {
    // From the right: the fingerprint has no space, whatever the name has.
    let (name, mark) = session.who.as_deref()?.rsplit_once(' ')?;
    let token = console.admin.token_of(name)?;
    // The cookie alone stays valid until it expires; a log-out is therefore recorded in the ledger.
    let is_over = console.admin.ledger.is_operators_session_over(&session.id);
    (mark == self::mark(&token) && !is_over).then(|| name.to_owned())
}

/// Fingerprint of a token in a session: it changes with the token and reveals nothing of it.
fn mark(token: &Secret) -> String {
    let digest = Sha256::digest(format!("tollgate operator {}", token.expose()));
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Template)]
#[template(path = "operator_login.html")]
struct LogIn {
    frame: PageFrame,
}

/// `GET /operator/login`
pub(super) async fn page(
    State(console): State<OperatorConsole>,
    Extension(session): Extension<Session>,
) -> Response {
    if name(&console, &session).is_some() {
        return Redirect::to(BASE).into_response();
    }
    HtmlPage(LogIn { frame: console.frame(&session) }).into_response()
}

/// `POST /operator/login`
pub(super) async fn log_in(
    State(console): State<OperatorConsole>,
    Extension(session): Extension<Session>,
    client: Option<Extension<Client>>,
    form: Form,
) -> Response {
    let refused = |status: StatusCode, text: &str| {
        let frame = console.frame(&session).with_flash(FlashLevel::Error, text);
        (status, HtmlPage(LogIn { frame })).into_response()
    };
    let address = web::customer(client.and_then(|Extension(client)| client.address));
    // Taken before the comparison and given back afterwards: parallel guesses cannot exceed the limit.
    if !console.attempts.take(address) {
        return refused(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many tries. Wait half a minute and try again.",
        );
    }
    let token = Secret::new(form.text("token").to_owned());
    let operator = console.admin.operator(token.expose().as_bytes());
    let Some(name) = operator.as_ref().and_then(Actor::name) else {
        // Without the token: it may be the right one of another gateway.
        log::warn!("somebody tried to log in to the operators' console with a wrong token");
        return refused(StatusCode::FORBIDDEN, "This is not a token of the admin API.");
    };
    console.attempts.give_back(address);
    let who = format!("{name} {}", mark(&token));
    // A new session id with each log-in, so that an id planted in the browser before is worth nothing.
    let begun = SessionChange::Begin(Session::begin(Some(who), LIFETIME));
    (Extension(begun), Redirect::to(BASE)).into_response()
}

/// `POST /operator/logout`: the session is refused from now on, wherever its cookie is kept. Of one
/// that was over before, nothing is written.
pub(super) async fn log_out(
    State(console): State<OperatorConsole>,
    Extension(session): Extension<Session>,
) -> Response {
    if let Some(name) = name(&console, &session) {
        let by = console.admin.ledger.by(&Actor::operator(&name));
        if let Err(error) = by.end_operators_session(session.id, session.until).await {
            log::error!("an operator could not be logged out: {error}");
            let failed = FailurePage {
                frame: console.frame(&session),
                title: "You are still logged in",
                text: "The gateway could not write down that you log out. Go back and try again."
                    .to_owned(),
            };
            // The cookie stays: removing it would look like a log-out, while a stolen copy still worked.
            return (StatusCode::SERVICE_UNAVAILABLE, HtmlPage(failed)).into_response();
        }
    }
    (Extension(SessionChange::End), Redirect::to(LOG_IN)).into_response()
}

/// The page for any path that no other page has.
pub(super) async fn nowhere(operator: LoggedInOperator) -> Response {
    operator.failed(ApiError::not_found(NOWHERE))
}

/// The query of a page. What cannot be read asks for nothing in particular.
pub(super) struct LenientQuery<T>(pub(super) T);

impl<T: DeserializeOwned + Default> FromRequestParts<OperatorConsole> for LenientQuery<T> {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        _: &OperatorConsole,
    ) -> Result<Self, Infallible> {
        // Links are typed and bookmarked by people: a stale parameter shows the first page, not an error.
        let read = Query::<T>::try_from_uri(&parts.uri);
        Ok(Self(read.map(|Query(query)| query).unwrap_or_default()))
    }
}
