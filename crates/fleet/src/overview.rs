//! The cached overview of the fleet for pages and metrics: at most one query every few seconds, and one at a
//! time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Fleet;
use super::postgres::FleetOverview;

/// The maximum age of the overview: less than the interval between two scrapes.
const AGE_MAX: Duration = Duration::from_secs(5);
/// The longest wait for a newer overview: a database in trouble must not delay a scrape that reports the
/// trouble.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The cached overview and its refresh.
#[derive(Debug, Default)]
pub(super) struct OverviewQuery {
    state: Mutex<OverviewCache>,
    /// A question was answered, or failed.
    answered: Notify,
}

#[derive(Debug, Default)]
struct OverviewCache {
    overview: Option<Arc<FleetOverview>>,
    /// The time of the last query, failed ones included.
    queried_at: Option<Instant>,
    is_querying: bool,
}

impl Fleet {
    /// The fleet as it was seen in the last seconds, or before, if the database does not answer;
    /// `None` if it never has.
    pub async fn overview(self: &Arc<Self>) -> Option<Arc<FleetOverview>> {
        let mut answered = std::pin::pin!(self.overview_query.answered.notified());
        // From here on no answer is missed.
        answered.as_mut().enable();
        if self.begin_query() {
            let fleet = Arc::clone(self);
            tokio::spawn(async move {
                let overview = fleet.db.overview().await;
                if let Err(error) = &overview {
                    log::debug!("the fleet cannot be seen: {error}");
                }
                let mut state = fleet.overview_query.state.lock();
                state.is_querying = false;
                state.queried_at = Some(Instant::now());
                state.overview = overview.ok().map(Arc::new).or(state.overview.take());
                drop(state);
                fleet.overview_query.answered.notify_waiters();
            });
        }
        if self.overview_query.state.lock().is_querying {
            tokio::time::timeout(WAIT_MAX, answered).await.ok();
        }
        self.overview_query.state.lock().overview.clone()
    }

    /// True if the overview is too old and no query is running; the caller then starts one.
    fn begin_query(&self) -> bool {
        let mut state = self.overview_query.state.lock();
        let is_new = state.queried_at.is_some_and(|queried_at| queried_at.elapsed() < AGE_MAX);
        let begins = !is_new && !state.is_querying;
        state.is_querying |= begins;
        begins
    }
}
