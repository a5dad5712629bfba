//! What closed files of the journal need: seals, checkpoints, and their way to the archive.
//!
//! It may import the layers below: `projection`, the journal, `files`, `rules`, `records`.

pub(crate) mod worker;
