//! Small JSON files that are replaced as a whole and have a checksum of their own: what is read is what
//! was written, or an error.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::files::sync_directory;

/// Layout of a checksummed file: its content as written, and the SHA-256 of that.
#[derive(Serialize, Deserialize)]
struct ChecksummedFile {
    says: Box<RawValue>,
    #[serde(with = "hex32")]
    sha256: [u8; 32],
}

/// Replaces the file at `path`. The new one is on disk before the old one is gone: first its bytes, then
/// its name, so that a power cut leaves one of them whole.
///
/// # Errors
/// The operating system's.
pub fn write(path: &Path, says: &impl Serialize) -> io::Result<()> {
    let bytes = content(says)?;
    let new = path.with_extension("new");
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()
    };
    // Half a file on a full disk is room that others wait for.
    write().inspect_err(|_| drop(fs::remove_file(&new)))?;
    fs::rename(&new, path)?;
    // Without this the rename may be undone by a power cut, after the caller has acted on it.
    sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// The bytes of a file that says this.
///
/// # Errors
/// When it has no form in JSON.
pub fn content(says: &impl Serialize) -> io::Result<Vec<u8>> {
    // Hashed as text, not as values: field order and spacing need not survive a parser.
    let says = serde_json::value::to_raw_value(says)?;
    let sha256 = Sha256::digest(says.get().as_bytes()).into();
    let mut bytes = serde_json::to_vec(&ChecksummedFile { says, sha256 })?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Reads the file at `path`; `None` if there is none.
///
/// # Errors
/// The operating system's, and [`io::ErrorKind::InvalidData`] with [`CorruptFile`] in it for a file that
/// was changed.
pub fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    parse(&bytes).map(Some)
}

/// Reads the bytes of such a file.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] with [`CorruptFile`] in it when they were changed.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    let changed = |cause: String| io::Error::new(io::ErrorKind::InvalidData, CorruptFile { cause });
    let unreadable = |error: serde_json::Error| changed(format!(": {error}"));
    let sealed: ChecksummedFile = serde_json::from_slice(bytes).map_err(unreadable)?;
    if <[u8; 32]>::from(Sha256::digest(sealed.says.get().as_bytes())) != sealed.sha256 {
        return Err(changed(String::new()));
    }
    serde_json::from_str(sealed.says.get()).map_err(unreadable)
}

/// A file whose checksum does not match its content, or that is no such file at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its checksum does not match what it says{cause}")]
pub struct CorruptFile {
    /// Empty, or a colon and what could not be read.
    cause: String,
}

/// Bytes in hexadecimal, two digits each.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes in hexadecimal, for serde's `with`.
pub mod hex32 {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    /// Writes a hash as 64 digits.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(hash: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&super::hex(hash))
    }

    /// Reads 64 digits.
    ///
    /// # Errors
    /// When they are no hash.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let digit =
            |at: usize| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        let mut hash = [0; 32];
        for (index, byte) in hash.iter_mut().enumerate() {
            *byte = digit(2 * index).ok_or_else(|| D::Error::custom("this is no hash"))?;
        }
        if text.len() == 64 { Ok(hash) } else { Err(D::Error::custom("this is no hash")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_changed_is_not_believed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file.json");
        assert_eq!(read::<Vec<u64>>(&path).expect("readable"), None);
        write(&path, &vec![1_u64, 2]).expect("written");
        assert_eq!(read::<Vec<u64>>(&path).expect("readable"), Some(vec![1, 2]));
        let text = fs::read_to_string(&path).expect("text");
        for changed in [text.replace("[1,2]", "[1,3]"), text[..text.len() / 2].to_owned()] {
            fs::write(&path, changed).expect("written");
            let error = read::<Vec<u64>>(&path).expect_err("it was changed");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
    }
}
