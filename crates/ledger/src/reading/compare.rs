//! Sled read whole while the ledger is open, to be compared with the journal.
//!
//! It is opened again first, so that the file is read and not what the cache has of it, and then read some
//! rows at a time, with pauses: the disk is the customers'.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;

use crate::journal::segment::Position;
use crate::projection::backlog::Backlog;
use crate::projection::load;
use crate::projection::projected::ProjectionSlot;
use crate::projection::store::{Store, StoreError, SweepFigures, SweptRows};
use crate::rules::audit;
use tollgate_types::ids::{NodeId, Seq};

/// Bytes of rows that are read in a second while the ledger is open: a small part of what any disk gives,
/// and some twentieth of a core.
const BYTES_PER_SECOND: u64 = 8 << 20;
/// Maximum duration of reading sled; a larger sled is read faster, since the whole check has ten minutes.
const DURATION_MAX: Duration = Duration::from_secs(240);
/// After so many bytes sled is opened again, which empties its cache: see [`ProjectionSlot::reopen`].
const REOPEN_BYTES: u64 = 8 << 20;
/// With less room than this sled is not opened again: it could only fail.
const FREE_BYTES_MIN: u64 = 8 << 20;
/// Between two looks whether another check has read all rows.
const TURN: Duration = Duration::from_millis(50);

/// Result of reading sled during a check.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "SledReading")]
pub struct SledReading {
    /// True if sled was compared with the journal.
    pub compared: bool,
    /// Reason for skipping the comparison; `null` if it was made.
    pub reason: Option<String>,
    /// Journal record at which both were compared.
    pub record: Seq,
    /// Number of rows read.
    pub rows: u64,
    /// Bytes of those rows.
    pub bytes: u64,
    /// Duration of the comparison in milliseconds, pauses included.
    pub duration_ms: u64,
}

impl SledReading {
    /// A reading that was not made, or not compared.
    pub(crate) fn without(reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..Self::default() }
    }

    /// Figures of a read that began at `begun`.
    pub(crate) fn measured(figures: SweepFigures, begun: Instant) -> Self {
        let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let SweepFigures { rows, bytes } = figures;
        Self { rows, bytes, duration_ms, ..Self::default() }
    }
}

/// The state that sled gives at one record of the journal.
pub(crate) struct SledState {
    pub(crate) end: Position,
    pub(crate) state_hash: [u8; 32],
    pub(crate) acts: [u8; 32],
}

/// The outcome of reading all rows of sled.
pub(crate) struct SledRead {
    pub(crate) reading: SledReading,
    /// State according to sled; `None` if it cannot be compared.
    pub(crate) state: Option<SledState>,
    /// Rules violated by the rows themselves.
    pub(crate) violations: Vec<String>,
}

impl SledRead {
    fn without(reason: impl Into<String>) -> Self {
        Self { reading: SledReading::without(reason), state: None, violations: Vec::new() }
    }

    /// The outcome where sled cannot be read. A full disk says nothing of money.
    fn failed(error: &StoreError) -> Self {
        let violations = if error.is_full { Vec::new() } else { vec![format!("sled: {error}")] };
        Self { violations, ..Self::without(error.to_string()) }
    }
}

/// Reads the sled ledger of the open ledger in `dir`, for as long as `goes_on`. What fails of it is looked
/// into by the projector, which makes it anew.
pub(crate) fn read_sled(
    dir: &Path,
    projected: &ProjectionSlot,
    backlog: &Backlog,
    goes_on: &dyn Fn() -> bool,
) -> SledRead {
    if let Err(error) = load::check_room(dir, FREE_BYTES_MIN) {
        return SledRead::without(error.to_string());
    }
    if let Some(cause) = projected.state().away {
        return SledRead::failed(&StoreError::new(cause));
    }
    let begun = Instant::now();
    let swept = match sweep(dir, projected, goes_on) {
        Ok(Some(swept)) => swept,
        Ok(None) => return SledRead::without("the check was given up"),
        Err(error) => {
            let failed = SledRead::failed(&error);
            projected.suspect(error);
            backlog.suspect();
            return failed;
        }
    };
    examine(&swept, SledReading::measured(swept.figures, begun))
}

/// The turn to read all rows.
struct SweepTurn<'a> {
    projected: &'a ProjectionSlot,
    name: u64,
}

impl<'a> SweepTurn<'a> {
    /// Waits until no other check reads sled. `None` if the check was abandoned.
    fn take(
        projected: &'a ProjectionSlot,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<Self>, StoreError> {
        while goes_on() {
            if let Some(name) = projected.inspect(|store| Ok(store.begin_sweep()))? {
                return Ok(Some(Self { projected, name }));
            }
            thread::sleep(TURN);
        }
        Ok(None)
    }
}

impl Drop for SweepTurn<'_> {
    fn drop(&mut self) {
        // Where sled is away, so is the reading.
        drop(self.projected.inspect(|store| {
            store.end_sweep(self.name);
            Ok(())
        }));
    }
}

/// Reads all rows. `None` if the check was given up.
fn sweep(
    dir: &Path,
    projected: &ProjectionSlot,
    goes_on: &dyn Fn() -> bool,
) -> Result<Option<SweptRows>, StoreError> {
    let Some(turn) = SweepTurn::take(projected, goes_on)? else { return Ok(None) };
    projected.reopen(&dir.join("sled"))?;
    let (file_bytes, _) = projected.inspect(Store::lengths)?;
    let per_second = BYTES_PER_SECOND.max(file_bytes / DURATION_MAX.as_secs());
    let (begun, mut reopen_at) = (Instant::now(), REOPEN_BYTES);
    while goes_on() {
        let figures = match projected.inspect(|store| store.sweep_some(turn.name))? {
            Ok(swept) => return Ok(Some(swept)),
            Err(figures) => figures,
        };
        if figures.bytes >= reopen_at {
            projected.reopen(&dir.join("sled"))?;
            reopen_at = figures.bytes.saturating_add(REOPEN_BYTES);
        }
        let due = Duration::from_millis(figures.bytes.saturating_mul(1000) / per_second);
        thread::sleep(due.saturating_sub(begun.elapsed()));
    }
    Ok(None)
}

/// Checks whether the rows form a state, and compares it.
fn examine(swept: &SweptRows, reading: SledReading) -> SledRead {
    let cores = match swept.state() {
        Ok(cores) => cores,
        Err(error) => return SledRead { reading, ..SledRead::failed(&error) },
    };
    let end = swept.end.unwrap_or_default();
    SledRead {
        reading: SledReading { record: NodeId::count(end.seq), ..reading },
        violations: audit::violations(cores.iter()).iter().map(|v| format!("sled: {v}")).collect(),
        state: Some(SledState {
            end,
            state_hash: audit::state_hash(cores.iter()),
            acts: swept.acts,
        }),
    }
}
