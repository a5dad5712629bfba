//! A virtual environment with the pinned Python packages.

use std::fs::{File, read, write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment's directory; made anew when the pins change. Test binaries that start together
/// wait for the one that makes it.
pub(crate) fn environment() -> PathBuf {
    let pins = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/requirements.txt");
    // Below the build directory, wherever that is.
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-venv");
    let stamp = venv.join("requirements.txt");
    let lock = File::create(venv.with_extension("lock")).expect("a lock file");
    lock.lock().expect("the lock");
    let wanted = read(&pins).expect("the pins");
    if read(&stamp).ok().as_ref() != Some(&wanted) {
        run(
            Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv),
            "install Python 3 with its venv module (Debian: apt-get install python3-venv)",
        );
        run(
            Command::new(venv.join("bin/python"))
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
                .arg(&pins),
            "check that pip reaches a package index, then run the test again",
        );
        write(&stamp, wanted).expect("the stamp");
    }
    venv
}

fn run(command: &mut Command, remedy: &str) {
    let done = command.status().is_ok_and(|status| status.success());
    assert!(done, "{command:?} failed; {remedy}");
}
