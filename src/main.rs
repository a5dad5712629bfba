//! The `tollgate` command: parses its arguments and hands over to the library.

#![deny(clippy::expect_used)]

use std::process::ExitCode;

use clap::Parser;
use tollgate::cli::{Cli, report};

/// A third of the CPU that a proxied request costs goes to the system's allocator; see
/// `docs/adr/0004-allocator-and-runtime.md` for the figures.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(code) => code,
        Err(error) => report(&error),
    }
}
