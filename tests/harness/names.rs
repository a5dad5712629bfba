//! Names with addresses of a test's own, for the real binary: a library in front of the C library.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The variables with which a process finds these addresses for these names, such as
/// `pods.test=127.0.0.2,127.0.0.3`.
pub(crate) fn names(listed: &[&str]) -> [(&'static str, String); 2] {
    [("LD_PRELOAD", library().display().to_string()), ("TEST_NAMES", listed.join(";"))]
}

/// The library, which is compiled once for a process of tests.
fn library() -> &'static PathBuf {
    static LIBRARY: OnceLock<(PathBuf, tempfile::TempDir)> = OnceLock::new();
    let (library, _) = LIBRARY.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let (source, library) =
            (directory.path().join("names.c"), directory.path().join("names.so"));
        std::fs::write(&source, include_str!("names.c")).expect("written");
        let compiler = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .status();
        assert!(compiler.expect("a C compiler").success(), "names.c compiles");
        (library, directory)
    });
    library
}
