//! Contents of the ledger's `head.json`: its checkpoints.

use serde::{Deserialize, Serialize};
use tollgate_journal::checked::hex32;

pub(crate) use tollgate_journal::head::ForkPolicy;

use tollgate_types::ids::Seq;

/// End of the journal and the checkpoints it refers to.
pub(crate) type Head = tollgate_journal::head::JournalHead<Checkpoints>;
/// The file of an open ledger that has it.
pub(crate) type HeadFile = tollgate_journal::head::HeadFile<Checkpoints>;

/// Checkpoints recorded in the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checkpoints {
    /// The oldest first.
    pub checkpoints: Vec<Checkpoint>,
}

/// A checkpoint recorded in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// Position of the last record in the checkpoint.
    pub seq: Seq,
    /// The hash of its file, as the journal has it.
    #[serde(with = "hex32")]
    pub sha256: [u8; 32],
    /// Position of the record of the checkpoint.
    #[serde(rename = "told_at")]
    pub record_seq: Seq,
}

impl Checkpoints {
    /// Leaves out those of which the journal tells behind the record `seq`: a journal that ends there
    /// does not know them.
    pub(crate) fn cut_behind(&mut self, seq: Seq) {
        self.checkpoints.retain(|checkpoint| checkpoint.record_seq <= seq);
    }
}
