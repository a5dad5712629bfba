//! The newest record of each account: where its chain begins.
//!
//! They are kept in memory, and from time to time in a file, so that a start after a crash reads only
//! what was written since.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use tollgate_journal::ring::{RingReader, Segment};

use super::record::{self, LAYOUT, RingPosition};

const FILE: &str = "heads";
const NEW_FILE: &str = "heads.new";
const MAGIC: &[u8; 8] = b"TGHEADS1";
const ROW_BYTES: usize = 16;

/// By account, the position of its newest record.
pub(super) type Heads = HashMap<u64, RingPosition>;

/// The length of the file of so many heads, in bytes.
pub(super) fn file_bytes(heads: &Heads) -> u64 {
    (MAGIC.len() + 8 + heads.len() * ROW_BYTES + 4) as u64
}

/// Writes the heads of all records before `covers`.
pub(super) fn save(dir: &Path, heads: &Heads, covers: RingPosition) -> io::Result<()> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&covers.to_le_bytes());
    for (account, position) in heads {
        bytes.extend_from_slice(&account.to_le_bytes());
        bytes.extend_from_slice(&position.to_le_bytes());
    }
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    // Not synced: heads that a power failure spoils fail their checksum and cost a longer start, no record.
    fs::write(dir.join(NEW_FILE), bytes)?;
    fs::rename(dir.join(NEW_FILE), dir.join(FILE))
}

/// Removes the file, if there is one.
pub(super) fn forget(dir: &Path) {
    drop(fs::remove_file(dir.join(FILE)));
}

/// The last saved state, if it can be read.
fn saved(dir: &Path) -> Option<(Heads, RingPosition)> {
    let bytes = fs::read(dir.join(FILE)).ok()?;
    let (rows, crc) = bytes.split_last_chunk()?;
    if crc32fast::hash(rows) != u32::from_le_bytes(*crc) {
        return None;
    }
    let (covers, rows) = rows.strip_prefix(MAGIC.as_slice())?.split_first_chunk()?;
    let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let heads = rows
        .chunks_exact(ROW_BYTES)
        .map(|row| Some((number(row)?, number(row.get(8..)?)?)))
        .collect::<Option<Heads>>()?;
    Some((heads, u64::from_le_bytes(*covers)))
}

/// Restores the heads of a log and the end of its last complete record from the saved heads and the records
/// after them.
pub(super) fn recover(dir: &Path, reader: &mut RingReader) -> io::Result<(Heads, RingPosition)> {
    let end = reader.segments().last().map_or(0, Segment::end);
    let saved = saved(dir).filter(|(_, covers)| *covers <= end && !reader.is_removed(*covers));
    let (mut heads, covers) = saved.unwrap_or_default();
    let mut whole_to = covers;
    for segment in reader.segments().to_vec() {
        // The saved heads cover it. The last file is read in any case, to find where its last whole record
        // ends.
        if segment.end() <= covers && segment.end() < end {
            continue;
        }
        let mut position = segment.first().max(covers);
        while let Some(frame) = reader.frame_ahead(position)? {
            let Some(head) = record::head(frame).filter(|_| LAYOUT.is_whole(frame)) else { break };
            heads.insert(head.account, position);
            position += frame.len() as u64;
        }
        whole_to = position;
    }
    Ok((heads, whole_to))
}
