//! A secret in a file.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a secret to a file that only its owner can read.
///
/// # Errors
/// What the operating system says.
pub fn write_private(path: &Path, secret: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    writeln!(file, "{secret}")?;
    file.sync_all()
}
