//! The file in a data directory that names its fleet and node.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use tollgate_ledger::NodeId;

/// The file in the data directory.
const FILE: &str = "node.json";

/// A node of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeIdentity {
    /// The id of the treasury's database.
    pub(super) fleet: String,
    /// The number of the node in its fleet.
    pub(super) node: NodeId,
}

impl NodeIdentity {
    /// Reads the identity of a data directory; `None` for one that no node has used.
    ///
    /// # Errors
    /// When the file cannot be read, or is not what this program writes.
    pub(super) fn find(data_dir: &Path) -> io::Result<Option<Self>> {
        match fs::read(data_dir.join(FILE)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Marks the directory as this node's, permanently.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn keep(&self, data_dir: &Path) -> io::Result<()> {
        let (path, new) = (data_dir.join(FILE), data_dir.join("node.json.new"));
        let mut file = File::create(&new)?;
        serde_json::to_writer(&mut file, self)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        // Whole or not there: half an identity would make the data of this node nobody's.
        fs::rename(&new, path)?;
        File::open(data_dir)?.sync_all()
    }
}
