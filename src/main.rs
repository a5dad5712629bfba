//! The `tollgate` command: parses its arguments and hands over to the library.

#![deny(clippy::expect_used)]

use std::process::ExitCode;

use clap::Parser;
use tollgate::cli::{Cli, report};
use tollgate::server::PROGRAM;

/// A third of the CPU that a proxied request costs goes to the system's allocator; see
/// `docs/adr/0004-allocator-and-memory.md` for the figures.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Cli::parse().run(&PROGRAM) {
        Ok(code) => code,
        Err(error) => report(&error),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    /// More than other tests of this process could ever need.
    const BLOCKS: usize = 64;
    const BLOCK_BYTES: usize = 1 << 20;

    /// Resident memory without mapped files, in bytes.
    fn anonymous_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("RssAnon");
        let kib: usize = line.split_whitespace().nth(1).expect("a number").parse().expect("KiB");
        kib * 1024
    }

    #[tokio::test]
    async fn what_was_freed_goes_back_to_the_kernel_while_nothing_goes_on() {
        drop(std::hint::black_box(vec![vec![1_u8; BLOCK_BYTES]; BLOCKS]));
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let before = anonymous_bytes();
        assert!(before > BLOCKS * BLOCK_BYTES / 2, "{before} bytes: there is nothing to give back");
        let giving_back = tollgate::server::memory::give_back(|| 0);
        assert!(tokio::time::timeout(Duration::from_secs(3), giving_back).await.is_err());
        let after = anonymous_bytes();
        assert!(before - after > BLOCKS * BLOCK_BYTES / 2, "{before} bytes, and then {after}");
    }
}
