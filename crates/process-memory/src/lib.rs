//! Memory of the process: allocator settings, reusable body buffers, work on large bodies, unmapping of program
//! code that only a start needs, and memory-mapped files.
//!
//! No other crate of the workspace has unsafe code. Here it is the declaration of a function of the
//! allocator's, a call that has the kernel unmap what it can read again, and a file's mapping.

mod allocator;
mod buffer;
mod large_body;
mod mapped;
#[cfg(target_os = "linux")]
mod program;

pub use allocator::keep_little;
pub use buffer::{Buffer, free_unused};
pub use large_body::{LARGE_BYTES, run_now};
pub use mapped::MappedFile;
#[cfg(target_os = "linux")]
pub use program::unmap_program;

/// Unmaps the resident part of the program's file; on Linux only.
///
/// # Errors
/// Always: it is known on Linux only.
#[cfg(not(target_os = "linux"))]
pub fn unmap_program() -> std::io::Result<usize> {
    Err(std::io::ErrorKind::Unsupported.into())
}
