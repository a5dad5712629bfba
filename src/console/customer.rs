//! Who is logged in, and what they are told when something is not there or went wrong.

use axum::Extension;
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Redirect, Response};

use super::{Console, NAV};
use crate::ledger::{Account, AccountId, LedgerError};
use crate::web::{Failed, Frame, Page, Session};

/// What a page of the console comes to: itself, or the page that says why it is not there.
pub(super) type Answer = Result<Response, Response>;

/// Somebody who is logged in; whoever is not is shown the way in.
pub(super) struct Customer {
    /// Their account, as it was when the request came.
    pub(super) account: Account,
    /// The session that they have.
    pub(super) session: Session,
}

impl Customer {
    /// Whose session it is, unless it is over.
    pub(super) fn of(console: &Console, session: &Session) -> Option<Self> {
        let id: AccountId = session.who.as_deref()?.parse().ok()?;
        let account = console.ledger.account(id)?;
        Some(Self { account, session: session.clone() })
    }

    /// The frame of a page on the way `here`, a path of [`NAV`].
    pub(super) fn frame(&self, console: &Console, here: &'static str) -> Frame {
        console.frame(&self.session).of(self.account.name.clone(), NAV, here)
    }

    /// The page for what does not exist, or is another account's.
    pub(super) fn nowhere(&self, console: &Console) -> Response {
        let page = Failed {
            frame: self.frame(console, "nowhere"),
            title: "There is no such page",
            text: "The address may have been mistyped, or what it named is gone.".to_owned(),
        };
        (StatusCode::NOT_FOUND, Page(page)).into_response()
    }

    /// The page for what the ledger could not do. What is wrong with what was typed is said beside
    /// the field, before the ledger is asked.
    pub(super) fn failed(&self, console: &Console, error: &LedgerError) -> Response {
        log::error!("a page of the customers' console failed: {error}");
        let page = Failed {
            frame: self.frame(console, "failed"),
            title: "This did not work",
            text: "The gateway could not read or write it. Try again in a moment.".to_owned(),
        };
        (StatusCode::SERVICE_UNAVAILABLE, Page(page)).into_response()
    }
}

impl FromRequestParts<Console> for Customer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Response> {
        let session = parts.extensions.get::<Session>();
        let customer = session.and_then(|session| Self::of(console, session));
        customer.ok_or_else(|| Redirect::to(&console.at("/login")).into_response())
    }
}

/// Any other path.
pub(super) async fn nowhere(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
) -> Response {
    match Customer::of(&console, &session) {
        Some(customer) => customer.nowhere(&console),
        None => Redirect::to(&console.at("/login")).into_response(),
    }
}
