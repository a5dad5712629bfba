//! Authentication at upstreams that accept no long-lived key: Microsoft Entra tokens, Google service
//! accounts, AWS signatures and roles.
//!
//! [`Credentials::token`] gives the [`Token`] with which a try is made, and [`Token::headers`] what
//! stands in its head. What was issued is kept and renewed before it ends; of many requests that find
//! nothing, one has it fetched. Whoever issues tokens is asked within a time, a size and a number of calls,
//! and after a failure is left alone for a while.
//!
//! | File | What it knows |
//! |---|---|
//! | `token` | what a request shows to its upstream |
//! | `issued` | what that was made of: a token, or keys that sign |
//! | `cell` | what was issued, and who waits for it |
//! | `source` | a credential's cells, and how whoever issues its tokens is doing |
//! | `fetch` | one call to whoever issues tokens |
//! | `question`, `entra`, `google`, `sts` | what each of them is asked, and answers |
//! | `sigv4` | AWS's signatures |
//! | `presigned` | URLs of objects in S3 that carry their signatures |

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

mod sigv4;
mod presigned;
mod issued;
mod cell;
mod token;
mod source;
mod question;
mod entra;
mod google;
mod sts;
mod fetch;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tollgate_options::auth::Auth;
use tollgate_outbound::{FormClient, LocalResource};
use tollgate_types::ids::AccountId;

use cell::{CellStanding, Fetch};
pub use issued::{SignedHeaders, UnsignedRequest};
pub use presigned::presigned_s3_url;
pub use source::RefreshOutcome;
use source::TokenSource;
pub use token::Token;

/// Maximum number of retained credentials of earlier configurations, which requests in flight may still need.
const SOURCES_MAX: usize = 512;

/// A callback for the outcome of each token request, with the upstream's name.
pub type RefreshObserver = Arc<dyn Fn(&str, RefreshOutcome) + Send + Sync>;

/// The issued credentials of a process. They outlive a reload if their configuration is unchanged.
pub struct Credentials {
    sources: RwLock<HashMap<u64, Arc<TokenSource>>>,
    client: FormClient,
    observer: RefreshObserver,
}

/// The reason for a missing token, as the operator's log shows it: without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    cause: Arc<str>,
    exhausted: Option<LocalResource>,
}

impl Unavailable {
    /// Resource that this machine lacked for the fetch, which then is nobody else's fault.
    #[must_use]
    pub fn exhausted(&self) -> Option<LocalResource> {
        self.exhausted
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no token for it: {}", self.cause)
    }
}

impl std::error::Error for Unavailable {}

/// The state of a credential, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredentialStanding {
    /// The remaining lifetime of the newest token; `None` without one.
    pub left: Option<Duration>,
    /// Number of accounts with their own session, or 1 for a common one.
    pub sessions: usize,
    /// Calls in a row that came to nothing.
    pub failures: u32,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("sources", &self.sources.read().len()).finish()
    }
}

impl Credentials {
    /// A manager without issued credentials.
    #[must_use]
    pub fn new(client: FormClient, observer: RefreshObserver) -> Self {
        Self { sources: RwLock::default(), client, observer }
    }

    /// Returns the token of an account for a call to the upstream: usually from the cache, otherwise after a
    /// fetch of [some seconds](fetch::CALL_TIMEOUT) at most.
    ///
    /// # Errors
    /// Nothing is there and nothing can be had now.
    pub async fn token(&self, auth: &Arc<Auth>, account: AccountId) -> Result<Token, Unavailable> {
        let source = self.source(auth);
        if let Some(issued) = &source.configured {
            return Ok(Token { issued: Arc::clone(issued), cell: None });
        }
        let account = source.account_tag().map(|_| account);
        let cell = source.cell(account.map_or(0, AccountId::number));
        let found = match cell.find(|| source.may_call()) {
            CellStanding::Waiting(mut fetched, fetch) => {
                self.begin(&source, account, fetch);
                // A fetch that is dropped says so as well.
                let _counted = fetched.changed().await;
                cell.good()
            }
            CellStanding::Good(issued, fetch) => {
                self.begin(&source, account, fetch);
                Some(issued)
            }
            CellStanding::Nothing => None,
        };
        match found {
            Some(issued) => Ok(Token { issued, cell: Some(cell) }),
            None => Err(source.unavailable()),
        }
    }

    /// Returns the state of a credential; `None` for one that needs no token.
    #[must_use]
    pub fn standing(&self, auth: &Auth) -> Option<CredentialStanding> {
        let source = Arc::clone(self.sources.read().get(&auth.id())?);
        if source.configured.is_some() {
            return None;
        }
        let (left, sessions) = (source.left(), source.good_count());
        Some(CredentialStanding { left, sessions, failures: source.failures() })
    }

    fn source(&self, auth: &Arc<Auth>) -> Arc<TokenSource> {
        if let Some(existing) = self.sources.read().get(&auth.id()) {
            return Arc::clone(existing);
        }
        let mut sources = self.sources.write();
        // All at once, since nothing says which are of old configurations: those in force are fetched
        // again.
        if sources.len() >= SOURCES_MAX {
            sources.clear();
        }
        let made = || Arc::new(TokenSource::new(Arc::clone(auth)));
        Arc::clone(sources.entry(auth.id()).or_insert_with(made))
    }

    /// Starts a fetch as a task of its own, so that no request ends it by disconnecting.
    fn begin(&self, source: &Arc<TokenSource>, account: Option<AccountId>, fetch: Option<Fetch>) {
        let Some(fetch) = fetch else { return };
        let (client, observer) = (self.client.clone(), Arc::clone(&self.observer));
        let source = Arc::clone(source);
        tokio::spawn(async move {
            let account = account.map(|account| account.to_string()).unwrap_or_default();
            let fetched = fetch::fetch(&client, &source, &account).await;
            let outcome = match fetched {
                // Before the token is there: whoever finds it must not find the pause of a failure beside
                // it.
                Ok(issued) => {
                    source.note_success();
                    fetch.put(issued);
                    RefreshOutcome::Ok
                }
                Err(failure) => {
                    source.note_failure(&failure);
                    failure.outcome
                }
            };
            observer(&source.auth.upstream, outcome);
            drop(fetch);
        });
    }
}
