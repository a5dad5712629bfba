//! The session's customer, and the pages for missing things and errors.

use axum::Extension;
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Redirect, Response};
use sha2::{Digest as _, Sha256};

use super::{CustomerConsole, NAV};
use tollgate_ledger::{
    Account, AccountId, Actor, ActorScope, IdempotencyKey, KeyId, KeyPatch, LedgerError, NewKey,
};
use tollgate_types::secret::Secret;
use tollgate_web_kit::{FailurePage, FlashLevel, Form, HtmlPage, PageFrame, Session};

/// Result of a page: its response, or the page that says why it is not available.
pub(super) type PageResult<T = Response> = Result<T, Response>;

/// A logged-in customer; other visitors are redirected to the log-in.
pub(super) struct LoggedInCustomer {
    /// The customer's account at the time of the request.
    pub(super) account: Account,
    /// The session that they have.
    pub(super) session: Session,
}

impl LoggedInCustomer {
    /// Customer of the session, unless the session is void.
    pub(super) fn from_session(console: &CustomerConsole, session: &Session) -> Option<Self> {
        let id: AccountId = session.who.as_deref()?.parse().ok()?;
        if console.ledger.is_session_over(id, &session.id, session.since) {
            return None;
        }
        let account = console.ledger.account(id)?;
        Some(Self { account, session: session.clone() })
    }

    /// True if the account is suspended.
    pub(super) fn is_suspended(&self) -> bool {
        self.account.suspended
    }

    /// The frame of a page on the way `here`, a path of [`NAV`].
    pub(super) fn frame(&self, console: &CustomerConsole, here: &'static str) -> PageFrame {
        let frame = console.frame(&self.session).logged_in(self.account.name.clone(), NAV, here);
        if self.is_suspended() {
            let text = "This account is suspended: its keys are refused, and it can make none. Ask \
                        whoever runs this gateway.";
            return frame.with_flash(FlashLevel::Error, text);
        }
        frame
    }

    /// This customer as the writer of ledger records.
    pub(super) fn writes<'a>(&self, console: &'a CustomerConsole) -> ActorScope<'a> {
        console.ledger.by(&Actor::Customer)
    }

    /// Creates a key, once per form token: `None` if the same form created it before.
    pub(super) async fn create_key(
        &self,
        console: &CustomerConsole,
        new: NewKey,
        sent: &Form,
    ) -> Result<Option<Secret>, LedgerError> {
        let id = sent.submit_token().map(str::to_owned);
        let digest = Sha256::digest(format!("{new:?}")).into();
        let writes = self.writes(console).with_idempotency_key(IdempotencyKey { id, digest });
        Ok(writes.create_key(self.account.id, new).await?.value.0)
    }

    /// Changes one of the customer's keys.
    pub(super) async fn update_key(
        &self,
        console: &CustomerConsole,
        key: KeyId,
        patch: KeyPatch,
    ) -> Result<(), LedgerError> {
        self.writes(console).update_key(key, patch).await.map(drop)
    }

    /// The page for what does not exist, or is another account's.
    pub(super) fn nowhere(&self, console: &CustomerConsole) -> Response {
        let page = FailurePage {
            frame: self.frame(console, "nowhere"),
            title: "There is no such page",
            text: "The address may have been mistyped, or what it named is gone.".to_owned(),
        };
        (StatusCode::NOT_FOUND, HtmlPage(page)).into_response()
    }

    /// Error page for a failure of the ledger. Invalid input is reported beside its field before.
    pub(super) fn failed(&self, console: &CustomerConsole, error: &LedgerError) -> Response {
        log::error!("a page of the customers' console failed: {error}");
        self.broken(console)
    }

    /// Error page for an internal failure.
    pub(super) fn broken(&self, console: &CustomerConsole) -> Response {
        let page = FailurePage {
            frame: self.frame(console, "failed"),
            title: "This did not work",
            text: "The gateway could not read or write it. Try again in a moment.".to_owned(),
        };
        (StatusCode::SERVICE_UNAVAILABLE, HtmlPage(page)).into_response()
    }
}

impl FromRequestParts<CustomerConsole> for LoggedInCustomer {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        console: &CustomerConsole,
    ) -> Result<Self, Response> {
        let session = parts.extensions.get::<Session>();
        let customer = session.and_then(|session| Self::from_session(console, session));
        customer.ok_or_else(|| Redirect::to(&console.at("/login")).into_response())
    }
}

/// The page for any path that no other page has; guests are shown the way in.
pub(super) async fn nowhere(
    State(console): State<CustomerConsole>,
    Extension(session): Extension<Session>,
) -> Response {
    match LoggedInCustomer::from_session(&console, &session) {
        Some(customer) => customer.nowhere(&console),
        None => Redirect::to(&console.at("/login")).into_response(),
    }
}
