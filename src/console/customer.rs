//! Who is logged in, and what they are told when something is not there or went wrong.

use axum::Extension;
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Redirect, Response};
use sha2::{Digest as _, Sha256};

use super::{Console, NAV};
use crate::ledger::{Account, AccountId, Actor, Asked, By, KeyId, KeyPatch, LedgerError, NewKey};
use crate::secret::Secret;
use crate::web::{Failed, Frame, Page, Session, Tone};

/// What a page of the console comes to: itself, or the page that says why it is not there.
pub(super) type Answer<T = Response> = Result<T, Response>;

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
        if console.ledger.is_session_over(id, &session.id, session.since) {
            return None;
        }
        let account = console.ledger.account(id)?;
        Some(Self { account, session: session.clone() })
    }

    /// Whether the account may make no calls.
    pub(super) fn is_suspended(&self) -> bool {
        self.account.suspended
    }

    /// The frame of a page on the way `here`, a path of [`NAV`].
    pub(super) fn frame(&self, console: &Console, here: &'static str) -> Frame {
        let frame = console.frame(&self.session).of(self.account.name.clone(), NAV, here);
        if self.is_suspended() {
            let text = "This account is suspended: its keys are refused, and it can make none. Ask \
                        whoever runs this gateway.";
            return frame.saying(Tone::Bad, text);
        }
        frame
    }

    /// What this customer writes.
    pub(super) fn writes<'a>(&self, console: &'a Console) -> By<'a> {
        console.ledger.by(&Actor::Customer)
    }

    /// Makes a key. `once` is what the form was given, which makes one key however often it is sent:
    /// `None` when it was made before.
    pub(super) async fn create_key(
        &self,
        console: &Console,
        new: NewKey,
        once: &str,
    ) -> Result<Option<Secret>, LedgerError> {
        let id = Some(once.to_owned()).filter(|once| !once.is_empty());
        let digest = Sha256::digest(format!("{new:?}")).into();
        let writes = self.writes(console).asked(Asked { id, digest });
        Ok(writes.create_key(self.account.id, new).await?.value.0)
    }

    /// Changes a key of theirs.
    pub(super) async fn update_key(
        &self,
        console: &Console,
        key: KeyId,
        patch: KeyPatch,
    ) -> Result<(), LedgerError> {
        self.writes(console).update_key(key, patch).await.map(drop)
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
        self.broken(console)
    }

    /// The page for what could not be done, through no fault of whoever asks.
    pub(super) fn broken(&self, console: &Console) -> Response {
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
