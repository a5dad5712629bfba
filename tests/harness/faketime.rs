//! A wrong clock for one process.

use std::fs;
use std::path::PathBuf;

/// What a process has in its environment whose clock is wrong by `offset`, such as `+5s`. How fast time
/// passes is right, and so is the clock that only measures.
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
