//! Signing keys for values that any node may verify: the first node's keys are stored in the database, and
//! every other node copies them before it needs them.

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::FleetError;
use super::postgres::Db;
use tollgate_ledger::write_private;
use tollgate_types::secret::Secret;

/// Signs webhooks: receivers know one secret for each account. 32 bytes in base64.
const WEBHOOK_KEY: &str = "webhook-key";
/// Signs the sessions of both consoles: a browser may meet another node with each request.
const SESSION_KEY: &str = "session-key";

/// Replaces the keys in the data directory by those of the fleet.
pub(super) async fn share(db: &Db, data_dir: &Path) -> Result<(), FleetError> {
    for name in [WEBHOOK_KEY, SESSION_KEY] {
        let path = data_dir.join(name);
        let io = |source| FleetError::Io { path: path.clone(), source };
        let own = match std::fs::read_to_string(&path) {
            Ok(text) => Secret::new(text.trim().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => made(name).map_err(io)?,
            Err(error) => return Err(io(error)),
        };
        // The first node's stands; any other gives way to it.
        let shared = db.shared_secret(name, &own).await?;
        write_private(&path, shared.expose()).map_err(io)?;
    }
    Ok(())
}

/// Offers the keys of a single gateway's directory to a fleet that has none.
pub(super) async fn offer(db: &Db, data_dir: &Path) -> Result<(), FleetError> {
    for name in [WEBHOOK_KEY, SESSION_KEY] {
        let path = data_dir.join(name);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                db.shared_secret(name, &Secret::new(text.trim().to_owned())).await?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(FleetError::Io { path, source }),
        }
    }
    Ok(())
}

fn made(name: &str) -> io::Result<Secret> {
    if name == SESSION_KEY {
        return Ok(Secret::new_token());
    }
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    Ok(Secret::new(STANDARD.encode(key)))
}
