//! A wrong clock for one process.

use std::fs;
use std::path::PathBuf;

/// Environment of a process whose clock is wrong by `offset`, such as `+5s`. The speed of time and the
/// monotonic clock are right.
pub(crate) fn fake_clock(offset: &str) -> [(&'static str, String); 4] {
    [
        ("LD_PRELOAD", library().display().to_string()),
        ("FAKETIME", offset.to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
    ]
}

/// Where the system has the library: below a directory that is called after the machine.
fn library() -> PathBuf {
    let machines = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let places = machines.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    let found = places.into_iter().find(|path| path.is_file());
    found.expect("faketime is missing; install what the tests need with: bash .ci/install")
}
