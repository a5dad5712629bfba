//! What operators see of the fleet on pages and in metrics that are asked for often: the database is
//! asked every few seconds at most, whoever looks, and one question is under way at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Fleet;
use super::postgres::Overview;

/// How old what is shown may be: less than the time between two scrapes.
const AGE_MAX: Duration = Duration::from_secs(5);
/// How long one waits for what is newer: a database in trouble must not hold up a scrape, which tells
/// of just that.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// What was seen last.
#[derive(Debug, Default)]
pub(super) struct Seen {
    state: Mutex<OverviewCache>,
    /// A question was answered, or failed.
    answered: Notify,
}

#[derive(Debug, Default)]
struct OverviewCache {
    overview: Option<Arc<Overview>>,
    /// When the database was asked last, whatever it said.
    asked_at: Option<Instant>,
    is_asking: bool,
}

impl Fleet {
    /// The fleet as it was seen in the last seconds, or before, if the database does not answer;
    /// `None` if it never has.
    pub async fn overview(self: &Arc<Self>) -> Option<Arc<Overview>> {
        let mut answered = std::pin::pin!(self.seen.answered.notified());
        // From here on no answer is missed.
        answered.as_mut().enable();
        if self.begin_to_ask() {
            let fleet = Arc::clone(self);
            tokio::spawn(async move {
                let overview = fleet.db.overview().await;
                if let Err(error) = &overview {
                    log::debug!("the fleet cannot be seen: {error}");
                }
                let mut state = fleet.seen.state.lock();
                state.is_asking = false;
                state.asked_at = Some(Instant::now());
                state.overview = overview.ok().map(Arc::new).or(state.overview.take());
                drop(state);
                fleet.seen.answered.notify_waiters();
            });
        }
        if self.seen.state.lock().is_asking {
            tokio::time::timeout(WAIT_MAX, answered).await.ok();
        }
        self.seen.state.lock().overview.clone()
    }

    /// Whether what is known is too old, and nobody asks yet.
    fn begin_to_ask(&self) -> bool {
        let mut state = self.seen.state.lock();
        let is_new = state.asked_at.is_some_and(|asked_at| asked_at.elapsed() < AGE_MAX);
        let begins = !is_new && !state.is_asking;
        state.is_asking |= begins;
        begins
    }
}
