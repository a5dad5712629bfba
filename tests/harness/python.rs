//! A virtual environment with the pinned Python packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::install::{once, run};

/// The environment's directory.
pub(crate) fn environment() -> PathBuf {
    environment_of("python-venv", "tests/python/requirements.txt")
}

/// The directory `name` of an environment with the packages of another file.
pub(crate) fn environment_of(name: &str, pins: &str) -> PathBuf {
    let pins = Path::new(env!("CARGO_MANIFEST_DIR")).join(pins);
    once(name, &pins, |venv| {
        run(
            Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv),
            "install Python 3 with its venv module (Debian: apt-get install python3-venv)",
        );
        run(
            Command::new(venv.join("bin/python"))
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
                .arg(&pins),
            "check that pip reaches a package index, then run the test again",
        );
    })
}
