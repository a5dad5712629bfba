//! Maintenance of closed journal files: seals, checkpoints, and their move to the archive.
//!
//! It may import the layers below: `projection`, the journal, `files`, `rules`, `records`.

pub(crate) mod worker;
