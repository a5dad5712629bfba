//! The cache of one issued credential, with the tasks that wait for it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tollgate_types::clock::uptime;

use crate::issued::IssuedCredential;

/// The pause after a token was discarded during which the next one is kept even if an upstream refuses it: an
/// upstream that refuses every token must not cause a token request per call.
const GIVE_UP_PAUSE: Duration = Duration::from_secs(60);

/// Caches an issued credential. One of many concurrent callers fetches a missing one.
#[derive(Debug)]
pub(crate) struct Cell {
    state: Mutex<CellState>,
    /// Number of completed fetches.
    fetched: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct CellState {
    issued: Option<Arc<IssuedCredential>>,
    is_fetching: bool,
    /// An upstream has refused what is there, and another one is waited for. Where none can be had, it
    /// is used on: a customer may be at fault for the refusal.
    is_refused: bool,
    /// The time at which a token was last discarded.
    given_up_at: Option<Duration>,
}

/// The state of the cache for a caller.
pub(crate) enum CellStanding {
    /// The credential is usable. If a fetch is returned, it must be started to renew the credential.
    Good(Arc<IssuedCredential>, Option<Fetch>),
    /// A fetch is under way, or is to be begun, and can be waited for.
    Waiting(watch::Receiver<u64>, Option<Fetch>),
    /// There is no credential, and no fetch may begin now.
    Nothing,
}

/// The fetch in progress for a cell; ends when it is dropped.
pub(crate) struct Fetch(Arc<Cell>);

impl Default for Cell {
    fn default() -> Self {
        Self { state: Mutex::default(), fetched: watch::Sender::new(0) }
    }
}

impl Cell {
    /// Looks up the state; `may_fetch` decides if the caller may start a fetch.
    pub(crate) fn find(self: &Arc<Self>, may_fetch: impl FnOnce() -> bool) -> CellStanding {
        let now = uptime();
        let mut state = self.state.lock();
        let good = state.issued.clone().filter(|issued| now < issued.ends_at);
        let is_refused = state.is_refused;
        let needs_refresh = good.as_ref().is_none_or(|issued| is_refused || now >= issued.renew_at);
        let begins = needs_refresh && !state.is_fetching && may_fetch();
        state.is_fetching |= begins;
        let fetch = begins.then(|| Fetch(Arc::clone(self)));
        match good {
            Some(issued) if !(is_refused && state.is_fetching) => CellStanding::Good(issued, fetch),
            // Whoever waits has subscribed before the fetch can be over.
            _ if state.is_fetching => CellStanding::Waiting(self.fetched.subscribe(), fetch),
            _ => CellStanding::Nothing,
        }
    }

    /// The currently usable credential.
    pub(crate) fn good(&self) -> Option<Arc<IssuedCredential>> {
        let issued = self.state.lock().issued.clone();
        issued.filter(|issued| uptime() < issued.ends_at)
    }

    /// Discards a credential that an upstream has refused, unless one was discarded just now. Returns true if
    /// another is available or can be fetched.
    pub(crate) fn give_up(&self, refused: &Arc<IssuedCredential>) -> bool {
        let now = uptime();
        let mut state = self.state.lock();
        let is_kept = state.issued.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, refused));
        if !is_kept || state.is_refused {
            return true;
        }
        if state.given_up_at.is_some_and(|at| now.saturating_sub(at) < GIVE_UP_PAUSE) {
            return false;
        }
        (state.is_refused, state.given_up_at) = (true, Some(now));
        true
    }
}

impl Fetch {
    /// Stores a fetched credential.
    pub(crate) fn put(&self, issued: IssuedCredential) {
        let mut state = self.0.state.lock();
        (state.issued, state.is_refused) = (Some(Arc::new(issued)), false);
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        // What was refused is used on where there is no other.
        (state.is_fetching, state.is_refused) = (false, false);
        drop(state);
        self.0.fetched.send_modify(|count| *count = count.wrapping_add(1));
    }
}
