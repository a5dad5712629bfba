//! Follows the fleet's directory, so that what was written anywhere holds here.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;

use crate::HasFleet;
use crate::postgres::ChannelNotification;
use crate::postgres::directory::CHANNEL;
use crate::postgres::recall::RECALLED;
use tollgate_ledger::Ledger;

/// The interval of polling for writes without a notification: half of the second within which a revoked key
/// is refused everywhere.
const POLL: Duration = Duration::from_millis(500);

/// Follows the directory and handles recalls until it is dropped, or until a write needs a newer version.
/// Returns at once in a ledger without a fleet.
pub async fn follow(ledger: Arc<Ledger>) {
    let Some(fleet) = ledger.fleet() else { return };
    let directory = Arc::clone(fleet.directory());
    let mut announced = Some(directory.db().listen(&[CHANNEL, RECALLED]));
    let mut is_failing = false;
    while directory.stopped().is_none() {
        match ledger.catch_up().await {
            Ok(_) if is_failing => {
                log::info!(seq = ledger.followed(); "the fleet's directory is followed again");
                is_failing = false;
            }
            Ok(_) => {}
            Err(error) if is_failing => log::debug!("{error}"),
            Err(error) => {
                log::warn!("the fleet's directory cannot be followed now: {error}");
                is_failing = true;
            }
        }
        let notification = async {
            match &mut announced {
                Some(receiver) => next_write(receiver, &ledger).await,
                None => std::future::pending().await,
            }
        };
        match tokio::time::timeout(POLL, notification).await {
            // Nothing will ever be heard.
            Ok(None) => announced = None,
            // One look is enough for all that was announced so far.
            Ok(Some(_)) => {
                while let Some(Ok(notification)) = announced.as_mut().map(Receiver::try_recv) {
                    is_recall(&notification, &ledger);
                }
            }
            Err(_) => {}
        }
    }
}

/// Waits for a notification about the directory.
async fn next_write(
    announced: &mut Receiver<ChannelNotification>,
    ledger: &Ledger,
) -> Option<ChannelNotification> {
    loop {
        let notification = announced.recv().await?;
        if !is_recall(&notification, ledger) {
            return Some(notification);
        }
    }
}

/// True for a recall of money, which it handles: unneeded money should return before the waiting call times
/// out.
fn is_recall(notification: &ChannelNotification, ledger: &Ledger) -> bool {
    let is_recall = notification.channel == RECALLED;
    if is_recall && let Some(fleet) = ledger.fleet() {
        // What this node is short of, it knows.
        if notification.payload != fleet.node().number().to_string() {
            fleet.recalled();
        }
    }
    is_recall
}
