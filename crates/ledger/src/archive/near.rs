//! Cache of segments fetched from a bucket. A statement is read page by page, and successive pages
//! are often in one segment.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::Path;

use crate::files::seal::ArchivedSegment;

/// Files that are kept: they are compressed, and a segment has 64 MiB.
const FILES_MAX: usize = 4;
const BUFFER_BYTES: usize = 256 << 10;
/// The directory beside the journal's. Nothing in it is missed.
const DIRECTORY: &str = "fetched";

/// Opens the object of this key: a copy that is here, or what `fetch` gives, which is copied then. Where there is no room for a copy, it is read as it comes.
pub(super) fn open(
    journal_dir: &Path,
    key: &str,
    archived: &ArchivedSegment,
    fetch: impl Fn() -> io::Result<Box<dyn Read>>,
) -> io::Result<Box<dyn Read>> {
    let dir = journal_dir.with_file_name(DIRECTORY);
    // Of another ledger's segment of the same number, the key has another beginning.
    let path = dir.join(key.replace('/', "_"));
    if let Some(file) = whole(&path, archived.bytes) {
        return Ok(Box::new(file));
    }
    let new = dir.join(format!("{:016x}.new", fastrand::u64(..)));
    let mut input = fetch()?;
    let Ok(mut file) = make(&dir, &new) else { return Ok(input) };
    let mut buffer = vec![0; BUFFER_BYTES];
    let copied = loop {
        let read = match input.read(&mut buffer) {
            Ok(read) => read,
            Err(error) => {
                drop(fs::remove_file(&new));
                return Err(error);
            }
        };
        if read == 0 {
            break fs::rename(&new, &path);
        }
        if let Err(error) = file.write_all(buffer.get(..read).unwrap_or_default()) {
            break Err(error);
        }
    };
    match (copied, whole(&path, archived.bytes)) {
        (Ok(()), Some(file)) => Ok(Box::new(file)),
        _ => {
            drop(fs::remove_file(&new));
            fetch()
        }
    }
}

/// Removes what an earlier process has fetched: it was not flushed, and a power cut may have taken a part.
pub(super) fn clear(dir: &Path) {
    drop(fs::remove_dir_all(dir.join(DIRECTORY)));
}

fn make(dir: &Path, new: &Path) -> io::Result<File> {
    fs::create_dir_all(dir)?;
    tidy(dir)?;
    File::create(new)
}

fn whole(path: &Path, bytes: u64) -> Option<File> {
    let file = File::open(path).ok()?;
    (file.metadata().ok()?.len() == bytes).then_some(file)
}

/// Makes room for one more.
fn tidy(dir: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        files.push((entry.metadata()?.modified()?, entry.path()));
    }
    files.sort();
    let old = files.len().saturating_sub(FILES_MAX - 1);
    files.iter().take(old).try_for_each(|(_, path)| fs::remove_file(path))
}
