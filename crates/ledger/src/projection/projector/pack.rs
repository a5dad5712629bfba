//! Compaction of sled by copying its rows, without statement lines and hourly usage past their
//! retention. The journal keeps the lines, and the days keep the sums.

use crate::projection::load;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

use tollgate_options::ledger::Pruning;

use super::Projector;
use crate::files::seal;
use crate::journal::stream::Frames;
use crate::projection::store::{PruneCutoff, Store, StoreError};
use crate::records::act::IDS_KEPT;
use crate::records::error::OpenError;
use tollgate_types::clock::{MS_PER_DAY, MS_PER_HOUR, UnixMs};
use tollgate_types::ids::Seq;

/// Interval of checks of the file's length.
const INTERVAL: Duration = Duration::from_secs(1);
/// Delay before the next attempt after a failure, or if compaction would save nothing.
const REST: Duration = Duration::from_secs(600);
/// Time slice of copying.
const TURN: Duration = Duration::from_millis(50);
/// Between two turns: packing takes a third of one core, for seconds, where little else is done.
const PAUSE: Duration = Duration::from_millis(100);
/// Minimum free disk space, next to the new store, in bytes.
const FREE_BYTES_MIN: u64 = 64 << 20;
/// A line takes half as much again in sled as its records take in the journal.
const SLED_PER_JOURNAL: (u64, u64) = (3, 2);

/// Compaction as part of the projector.
pub(super) struct Packer<'a> {
    projector: &'a Projector,
    is_packing: bool,
    /// Receiver of the lines to drop; finding them may have to wait for the archive.
    cut: Option<Receiver<Result<PruneCutoff, OpenError>>>,
    begun: Instant,
    look_at: Instant,
}

impl<'a> Packer<'a> {
    pub(super) fn new(projector: &'a Projector) -> Self {
        let now = Instant::now();
        Self { projector, is_packing: false, cut: None, begun: now, look_at: now }
    }

    pub(super) fn is_packing(&self) -> bool {
        self.is_packing
    }

    /// Time of the next step, if any.
    pub(super) fn wake(&self) -> Option<Instant> {
        self.is_packing.then(|| Instant::now() + PAUSE)
    }

    /// Performs due work.
    pub(super) fn turn(&mut self) -> Result<(), StoreError> {
        if self.is_packing {
            return self.step();
        }
        if let Some(cut) = &self.cut {
            let found = match cut.try_recv() {
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => None,
                Ok(found) => Some(found),
            };
            self.cut = None;
            return found.map_or(Ok(()), |cut| self.begin(cut));
        }
        if self.look_at > Instant::now() {
            return Ok(());
        }
        self.look_at = Instant::now() + INTERVAL;
        let Projector { projected, pruning, .. } = self.projector;
        let (length, packed) = projected.write(Store::lengths)?;
        let growth = match pruning.growth_min {
            0 => 0,
            // Half as much again: copying costs the same for a small gain as for a large one.
            least => least.max(packed / 2),
        };
        if length >= packed.saturating_add(growth) {
            self.look_at = Instant::now() + REST;
            self.look(length)?;
        }
        Ok(())
    }

    /// Measures how much compaction would save.
    fn look(&mut self, length: u64) -> Result<(), StoreError> {
        let Projector { projected, dir, pruning, .. } = self.projector;
        if let Err(error) = load::check_room(dir, length.saturating_add(FREE_BYTES_MIN)) {
            log::warn!("the sled ledger is not packed: {error}");
            return Ok(());
        }
        let from = projected.write(Store::entries_from)?;
        let (sender, cut) = mpsc::sync_channel(1);
        let (journal, pruning) = (dir.join("journal"), *pruning);
        // A thread of its own: an archive that is slow must not hold up what is applied.
        let find = move || drop(sender.send(left_behind(pruning, &journal, from)));
        match std::thread::Builder::new().name("ledger-prune".to_owned()).spawn(find) {
            Ok(_) => self.cut = Some(cut),
            Err(error) => log::warn!("the sled ledger is not packed: {error}"),
        }
        Ok(())
    }

    fn begin(&mut self, cut: Result<PruneCutoff, OpenError>) -> Result<(), StoreError> {
        let Projector { projected, dir, .. } = self.projector;
        let cut = match cut {
            Ok(cut) => cut,
            Err(error) => {
                log::warn!("the sled ledger is not packed: {error}");
                return Ok(());
            }
        };
        self.begun = Instant::now();
        match projected.write(|store| Ok(store.pack(dir, cut)))? {
            Ok(()) => self.is_packing = true,
            Err(error) => log::error!("the sled ledger cannot be packed: {error}"),
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), StoreError> {
        let Projector { projected, backlog, dir, .. } = self.projector;
        let mut is_over = false;
        // Faster than a window can add to it, whatever the load.
        let begun = Instant::now();
        let mut goes_on = true;
        while !is_over && goes_on {
            is_over = projected.write(Store::copy_some)?;
            // It is opened again before more is read.
            goes_on = begun.elapsed() < TURN && !projected.write(|store| Ok(store.is_worn()))?;
        }
        if is_over {
            let (before, _) = projected.write(Store::lengths)?;
            if projected.exchange(dir, backlog.applied_seq())? {
                let (length, _) = projected.write(Store::lengths)?;
                log::info!(
                    "the sled ledger was packed: {length} bytes of {before} in {} ms",
                    self.begun.elapsed().as_millis()
                );
                self.look_at = Instant::now() + INTERVAL;
            }
            self.is_packing = false;
        } else {
            self.is_packing = projected.write(|store| Ok(store.is_packing()))?;
        }
        Ok(())
    }
}

/// Determines which lines may be dropped; those before `from` were dropped earlier.
fn left_behind(pruning: Pruning, journal: &Path, from: Seq) -> Result<PruneCutoff, OpenError> {
    let Pruning { keep, lines_max, .. } = pruning;
    let now = UnixMs::now();
    let before = |kept: Duration| {
        let kept = u64::try_from(kept.as_millis()).unwrap_or(u64::MAX);
        UnixMs(now.0.saturating_sub(kept))
    };
    // Whole days: what stays of a day by the hour would be counted twice beside the day's sum.
    let day = before(keep).0 / MS_PER_DAY;
    let hours = u32::try_from(day * (MS_PER_DAY / MS_PER_HOUR)).unwrap_or(0);
    let lines = lines_from(journal, from, before(keep), lines_max)?;
    Ok(PruneCutoff { lines, hours, ids: before(IDS_KEPT) })
}

/// The first record whose line stays. Those before stand in sealed segments, each of which can be read
/// where it is now; and they happened before `before`, or there are too many.
fn lines_from(dir: &Path, from: Seq, before: UnixMs, lines_max: u64) -> Result<Seq, OpenError> {
    let seals = seal::all(dir)?;
    let (mut lines, mut room) = (from, lines_max);
    let too_many = seals.iter().rev().find(|seal| {
        let bytes = seal.bytes.saturating_mul(SLED_PER_JOURNAL.0) / SLED_PER_JOURNAL.1;
        let has_room = bytes <= room;
        room = room.saturating_sub(bytes);
        !has_room
    });
    let too_many = too_many.map_or(0, |seal| seal.last_seq);
    for seal in &seals {
        if lines > 0 && seal.first_seq > lines
            || seal.last_seq > too_many && seal.summary.last_at >= before
        {
            break;
        }
        if seal.last_seq < lines {
            continue;
        }
        // Dropped lines are read from the segment from then on, so it must be readable now.
        if let Err(error) = Frames::open(dir, seal.first_seq) {
            log::warn!(
                "lines of statements stay in sled that could not be read without it: {error}"
            );
            break;
        }
        lines = seal.last_seq.saturating_add(1);
    }
    Ok(lines)
}
