//! The pinned Node packages. Node itself comes with the Python packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::install::{once, run};
use super::python;

/// The directory of the packages' commands, and of Node.
pub(crate) fn commands() -> [PathBuf; 2] {
    let node = python::environment().join("bin");
    let pins = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/package.json");
    let packages = once("node-packages", &pins, |directory| {
        std::fs::create_dir_all(directory).expect("a directory");
        std::fs::copy(&pins, directory.join("package.json")).expect("the pins");
        run(
            Command::new(node.join("npm"))
                .args(["install", "--silent", "--no-audit", "--no-fund"])
                .current_dir(directory)
                .env("PATH", path(std::slice::from_ref(&node))),
            "check that npm reaches a package registry, then run the test again",
        );
    });
    [packages.join("node_modules/.bin"), node]
}

/// A search path of these directories and the system's.
pub(crate) fn path(directories: &[PathBuf]) -> String {
    let first = directories.iter().map(|directory| directory.display().to_string());
    first.chain(["/usr/local/bin:/usr/bin:/bin".to_owned()]).collect::<Vec<_>>().join(":")
}
