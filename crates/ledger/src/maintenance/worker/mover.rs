//! Segments that no start needs go to the archive, one at a time, on a thread of their own: an archive
//! that is slow holds up no seal and no checkpoint.

use std::sync::Arc;
use std::time::Instant;

use super::{Maintenance, MaintenanceEvent};
use crate::archive;
use crate::files::seal::Seal;
use crate::journal::segment;
use crate::records::error::OpenError;
use tollgate_types::clock::UnixMs;

/// Thread that moves old segments to the archive.
pub(crate) struct Mover {
    maintenance: Arc<Maintenance>,
}

impl Mover {
    pub(super) fn new(maintenance: Arc<Maintenance>) -> Self {
        Self { maintenance }
    }

    pub(crate) fn run(self) {
        self.maintenance.repeat(|| self.turn());
    }

    /// Moves the oldest segment away, if its time has come: no checkpoint that is kept needs it.
    fn turn(&self) -> Result<(), OpenError> {
        let maintenance = &self.maintenance;
        let Some(to) = &maintenance.options.archive else { return Ok(()) };
        let dir = maintenance.journal_dir();
        let here = segment::list_here(&dir)?;
        let [oldest, rest @ ..] = here.as_slice() else { return Ok(()) };
        if rest.is_empty() {
            return Ok(());
        }
        let Some(seal) = Seal::find(&dir, *oldest)? else { return Ok(()) };
        let keep_ms = u64::try_from(to.keep.as_millis()).unwrap_or(u64::MAX);
        let is_old = seal.summary.last_at.0.saturating_add(keep_ms) <= UnixMs::now().0;
        let head = maintenance.head.now();
        let needed_from = head.notes.checkpoints.first().map_or(0, |checkpoint| checkpoint.seq);
        // A start replays the records after its checkpoint. The older of the two checkpoints counts, in
        // case the newer one is unreadable.
        if !is_old || seal.last_seq > needed_from {
            return Ok(());
        }
        let begun = Instant::now();
        let archived =
            archive::move_segment(&seal, &dir, &head.id, &to.to, &maintenance.broken_off)?;
        log::info!(
            "records {} to {} were moved to {}: {} bytes of {} in {} ms",
            seal.first_seq,
            seal.last_seq,
            archived.path.display(),
            archived.bytes,
            seal.bytes,
            begun.elapsed().as_millis()
        );
        maintenance.notify(MaintenanceEvent::Archived { bytes: seal.bytes });
        maintenance.measure(rest);
        Ok(())
    }
}
