//! A file in the data directory that says that the ledger in it is not to be opened: it lives on
//! elsewhere, or is not complete. Another says with which move it has come, once it is complete.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::files::directory::sync_directory;
use crate::records::error::OpenError;

/// Marker text in a directory whose restore has not finished.
pub(crate) const RESTORING: &str =
    "this ledger is being restored, or that was interrupted: remove the directory and begin again";
/// The file while it is being written.
const NEW: &str = "moved.json.new";
/// Keeps a ledger from being opened.
const FILE: &str = "moved.json";
/// Names the move that a ledger has come with.
const ARRIVED: &str = "arrived.json";

/// Marker of a directory that must not be opened, or the origin of a moved ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedMarker {
    /// In words for the operator.
    pub says: String,
    /// Id of the move.
    pub id: String,
}

impl MovedMarker {
    /// Reads the reason why the ledger in `dir` must not be opened; `None` if it may be.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn find(dir: &Path) -> Result<Option<Self>, OpenError> {
        Self::read(&dir.join(FILE))
    }

    /// The move that the ledger in `dir` has come with, if it has.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn arrived(dir: &Path) -> Result<Option<Self>, OpenError> {
        Self::read(&dir.join(ARRIVED))
    }

    fn read(path: &Path) -> Result<Option<Self>, OpenError> {
        let read = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.and_then(|bytes| {
                serde_json::from_slice(&bytes).map_err(io::Error::other).map(Some)
            }),
        };
        read.map_err(OpenError::io(path))
    }

    /// Keeps the ledger in `dir` from being opened. On disk when this returns.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep(&self, dir: &Path) -> Result<(), OpenError> {
        self.write(dir, FILE)
    }

    /// Notes the move that the ledger in `dir` has come with, and lets it be opened. A crash in between
    /// leaves it closed.
    ///
    /// # Errors
    /// When a file cannot be written or removed.
    pub fn arrive(&self, dir: &Path) -> Result<(), OpenError> {
        self.write(dir, ARRIVED)?;
        Self::remove(dir)
    }

    fn write(&self, dir: &Path, name: &str) -> Result<(), OpenError> {
        let (path, new) = (dir.join(name), dir.join(NEW));
        let write = || {
            let mut file = File::create(&new)?;
            serde_json::to_writer(&mut file, self)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            sync_directory(dir)
        };
        write().map_err(OpenError::io(&path))
    }

    /// Lets the ledger in `dir` be opened again.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn remove(dir: &Path) -> Result<(), OpenError> {
        let path = dir.join(FILE);
        let removed = match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| sync_directory(dir)),
        };
        removed.map_err(OpenError::io(path))
    }
}

/// Refuses a directory that contains the marker file.
pub(crate) fn check(dir: &Path) -> Result<(), OpenError> {
    match MovedMarker::find(dir)? {
        // Broken off before it could say so: it would be taken for a new ledger's directory.
        None if dir.join(NEW).exists() && !dir.join("journal").exists() => {
            Err(OpenError::Moved { path: dir.join(NEW), says: RESTORING.to_owned() })
        }
        None => Ok(()),
        Some(MovedMarker { says, .. }) => Err(OpenError::Moved { path: dir.join(FILE), says }),
    }
}
