//! Packages that tests install, once for each set of pins.

use std::fs::{File, read, write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory `name` below the build's, as `make` fills it; made anew when the pins change. Test
/// binaries that start together wait for the one that makes it.
pub(super) fn once(name: &str, pins: &Path, make: impl FnOnce(&Path)) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let stamp = directory.join("pins");
    let lock = File::create(directory.with_extension("lock")).expect("a lock file");
    lock.lock().expect("the lock");
    let expected = read(pins).expect("the pins");
    if read(&stamp).ok().as_ref() != Some(&expected) {
        make(&directory);
        write(&stamp, expected).expect("the stamp");
    }
    directory
}

/// Runs a command that must work; `remedy` says what to do when it does not.
pub(super) fn run(command: &mut Command, remedy: &str) {
    let done = command.status().is_ok_and(|status| status.success());
    assert!(done, "{command:?} failed; {remedy}");
}
