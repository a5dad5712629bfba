//! Searches that look at every account: few at a time, on threads that serve no requests.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tollgate_ledger::{Account, Ledger, ListOrder};

/// Searches at one time. Each may look at every account, and the cores belong to the customers.
const SEARCHES_MAX: usize = 2;

/// Permits of all searches of this process.
static SEARCHES: Semaphore = Semaphore::const_new(SEARCHES_MAX);

/// The first `limit` accounts that `fits` accepts behind `after`, in this order.
pub(super) async fn accounts(
    ledger: &Arc<Ledger>,
    order: ListOrder,
    after: Option<Account>,
    limit: usize,
    fits: impl Fn(&Ledger, &Account) -> bool + Send + 'static,
) -> Vec<Account> {
    // A closed semaphore gives none, and this one is never closed.
    let permit = SEARCHES.acquire().await.ok();
    let ledger = Arc::clone(ledger);
    let search = move || {
        // Held by the thread: a caller who leaves does not end what it has begun.
        let _permit = permit;
        ledger.list_accounts(order, after.as_ref(), limit, |account| fits(&ledger, account))
    };
    match tokio::task::spawn_blocking(search).await {
        Ok(found) => found,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
