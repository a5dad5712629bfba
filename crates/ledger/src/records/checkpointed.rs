//! Record of a checkpoint of sled.

use serde::{Deserialize, Serialize};

use tollgate_types::clock::UnixMs;
use tollgate_types::ids::Seq;

/// Record of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// Position of the last record in the checkpoint.
    pub seq: Seq,
    /// The hash of its file.
    pub sha256: [u8; 32],
    /// The hash of the state that it holds.
    pub state_hash: [u8; 32],
    /// Time of writing.
    pub at: UnixMs,
}
