//! Programs of the system that tests drive.

use std::env::{self, split_paths};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that tests drive, such as `nginx`. Where it is missing and this may install packages, it
/// is installed by the project's own script.
pub(crate) fn tool(name: &str) -> Command {
    let path = found(name).unwrap_or_else(|| {
        install();
        let remedy = "install what the tests need with: bash .ci/install";
        found(name).unwrap_or_else(|| panic!("{name} is missing; {remedy}"))
    });
    Command::new(path)
}

/// Where it is: packages of Debian's put servers where only root's `PATH` leads.
#[expect(clippy::disallowed_methods, reason = "a test looks for what the system has")]
fn found(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    directories.map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Runs the script as root; anybody else is told what to run. Test binaries that start together wait
/// for the one that installs.
fn install() {
    let lock = Path::new(env!("CARGO_TARGET_TMPDIR")).join("install.lock");
    let lock = File::create(lock).expect("a lock file");
    lock.lock().expect("the lock");
    let id = Command::new("id").arg("-u").output().expect("id runs").stdout;
    if id.trim_ascii() == b"0" {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/install");
        // What it could not install is missing still, and said so.
        drop(Command::new("bash").arg(script).status());
    }
}
