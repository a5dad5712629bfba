//! Segments that no start needs go to the archive, one at a time, on a thread of their own: an archive
//! that is slow holds up no seal and no checkpoint.

use std::sync::Arc;
use std::time::Instant;

use super::{Keeper, Kept};
use crate::archive;
use crate::files::seal::Seal;
use crate::journal::segment;
use crate::records::error::OpenError;
use tollgate_types::clock::UnixMs;

/// What the thread owns.
pub(crate) struct Mover {
    keeper: Arc<Keeper>,
}

impl Mover {
    pub(super) fn new(keeper: Arc<Keeper>) -> Self {
        Self { keeper }
    }

    pub(crate) fn run(self) {
        self.keeper.repeat(|| self.turn());
    }

    /// Moves the oldest segment away, if its time has come: no checkpoint that is kept needs it.
    fn turn(&self) -> Result<(), OpenError> {
        let keeper = &self.keeper;
        let Some(to) = &keeper.keeping.archive else { return Ok(()) };
        let dir = keeper.journal_dir();
        let here = segment::list_here(&dir)?;
        let [oldest, rest @ ..] = here.as_slice() else { return Ok(()) };
        if rest.is_empty() {
            return Ok(());
        }
        let Some(seal) = Seal::find(&dir, *oldest)? else { return Ok(()) };
        let keep_ms = u64::try_from(to.keep.as_millis()).unwrap_or(u64::MAX);
        let is_old = seal.summary.last_at.0.saturating_add(keep_ms) <= UnixMs::now().0;
        let head = keeper.head.now();
        let needed_from = head.notes.checkpoints.first().map_or(0, |checkpoint| checkpoint.seq);
        if !is_old || seal.last_seq > needed_from {
            return Ok(());
        }
        let begun = Instant::now();
        let archived = archive::move_segment(&seal, &dir, &head.id, &to.to, &keeper.broken_off)?;
        log::info!(
            "records {} to {} were moved to {}: {} bytes of {} in {} ms",
            seal.first_seq,
            seal.last_seq,
            archived.path.display(),
            archived.bytes,
            seal.bytes,
            begun.elapsed().as_millis()
        );
        keeper.tell(Kept::Archived { bytes: seal.bytes });
        keeper.measure(rest);
        Ok(())
    }
}
