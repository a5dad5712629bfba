//! Follows the fleet's directory, so that what was written anywhere holds here.

use std::sync::Arc;
use std::time::Duration;

use crate::fleet::postgres::directory::CHANNEL;
use crate::ledger::Ledger;

/// How often it is looked for what was not announced: half of the second within which a key that was
/// revoked anywhere is refused everywhere.
const POLL: Duration = Duration::from_millis(500);

/// Takes over what other nodes write into the directory, until it is dropped, or something stands there
/// that this version does not know. Ends at once in a ledger without a fleet.
pub async fn follow(ledger: Arc<Ledger>) {
    let Some(directory) = ledger.directory().cloned() else { return };
    let mut announced = Some(directory.db().listen(&[CHANNEL]));
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
        let heard = async {
            match &mut announced {
                Some(receiver) => receiver.recv().await,
                None => std::future::pending().await,
            }
        };
        match tokio::time::timeout(POLL, heard).await {
            // Nothing will ever be heard.
            Ok(None) => announced = None,
            // One look is enough for all that was announced so far.
            Ok(Some(_)) => {
                while announced.as_mut().is_some_and(|receiver| receiver.try_recv().is_ok()) {}
            }
            Err(_) => {}
        }
    }
}
