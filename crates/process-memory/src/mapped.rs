//! A file that is written by storing into the process's memory: a copy, where a system call takes several
//! times as long.

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The bytes of one store.
const WORD_BYTES: usize = size_of::<AtomicU64>();

/// The beginning of a file, mapped. What was stored outlives the process, as what was handed to the kernel
/// by a write does, and like that not the machine's power.
#[derive(Debug)]
pub struct MappedFile {
    start: NonNull<AtomicU64>,
    words: usize,
}

#[expect(
    unsafe_code,
    reason = "a pointer is neither sent nor shared unless somebody says that it may be"
)]
// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for MappedFile {}
#[expect(
    unsafe_code,
    reason = "a pointer is neither sent nor shared unless somebody says that it may be"
)]
// SAFETY: all that is done with it by reference are stores into atomics.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps the first `length` bytes of `file`, which is open for reading and writing. They have been
    /// written, so that there is room for them, and the file stays as long for as long as it is mapped:
    /// the process is ended where it stores behind the file's end.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where the file system may need room for what is written again, and
    /// [`io::ErrorKind::InvalidInput`] if the file is shorter, or `length` no multiple of eight.
    pub fn map(file: &File, length: usize) -> io::Result<Self> {
        if length == 0
            || !length.is_multiple_of(WORD_BYTES)
            || file.metadata()?.len() < length as u64
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if !is_written_in_place(file)? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        #[expect(unsafe_code, reason = "there is no other way to map a file")]
        // SAFETY: the kernel chooses the address, so nothing is there that it could take the place of.
        let start = unsafe { mmap(ptr::null_mut(), length, rights, flags, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, words: length / WORD_BYTES })
    }

    fn words(&self) -> &[AtomicU64] {
        #[expect(unsafe_code, reason = "the mapping is known by its address")]
        // SAFETY: so many words are mapped there until this is dropped, from the beginning of a page on.
        // Whatever bytes they have are integers, and nobody in the process stores into them but as atomics.
        unsafe {
            std::slice::from_raw_parts(self.start.as_ptr(), self.words)
        }
    }

    /// Stores `bytes` at `at`, which is a multiple of eight, as their number is. Whoever stores into the
    /// same place at the same time may leave some words of each.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the mapping has no such place; then nothing is stored.
    pub fn store(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        let (values, rest) = bytes.as_chunks::<WORD_BYTES>();
        let begin = at / WORD_BYTES;
        let words = self.words().get(begin..begin.saturating_add(values.len()));
        let words = words.filter(|_| rest.is_empty() && at.is_multiple_of(WORD_BYTES));
        for (word, value) in words.ok_or(io::ErrorKind::InvalidInput)?.iter().zip(values) {
            word.store(u64::from_ne_bytes(*value), Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "the mapping is known by its address")]
        // SAFETY: it was mapped with this length, and no reference into it outlives this.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.words * WORD_BYTES) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// True if the file system overwrites blocks in place, so that a mapped page always has room. Elsewhere a
/// store into a page without room would end the process.
#[cfg(target_os = "linux")]
fn is_written_in_place(file: &File) -> io::Result<bool> {
    // What `f_type` of statfs(2) is with ext2, ext3 and ext4, and in memory.
    const IN_PLACE: [rustix::fs::FsWord; 2] = [0xEF53, 0x0102_1994];
    Ok(IN_PLACE.contains(&rustix::fs::fstatfs(file)?.f_type))
}

/// Supported on Linux only.
#[cfg(not(target_os = "linux"))]
fn is_written_in_place(_: &File) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;

    fn file_of(length: usize) -> File {
        let mut file = tempfile::tempfile_in("/dev/shm").expect("a file");
        file.write_all(&vec![7; length]).expect("written");
        file
    }

    fn contents(file: &File) -> Vec<u8> {
        let mut bytes =
            vec![0; usize::try_from(file.metadata().expect("a length").len()).expect("fits")];
        file.read_exact_at(&mut bytes, 0).expect("read");
        bytes
    }

    #[test]
    fn what_is_stored_is_in_the_file_at_once_and_stays_there() {
        let file = file_of(64);
        let mapped = MappedFile::map(&file, 48).expect("mapped");
        mapped.store(8, b"eight by").expect("stored");
        let expected = [&[7; 8], &b"eight by"[..], &[7; 48]].concat();
        assert_eq!(contents(&file), expected);
        drop(mapped);
        assert_eq!(contents(&file), expected);
    }

    #[test]
    fn nothing_is_stored_beside_words_or_behind_the_mapping() {
        let file = file_of(64);
        let mapped = MappedFile::map(&file, 32).expect("mapped");
        for (at, length) in [(4, 8), (8, 7), (32, 8), (24, 16), (usize::MAX - 7, 16)] {
            let stored = mapped.store(at, &vec![1; length]);
            let error = stored.expect_err("no such place").kind();
            assert_eq!(error, io::ErrorKind::InvalidInput, "{length} bytes at {at}");
        }
        assert_eq!(contents(&file), [7; 64]);
        for length in [0, 12, 72] {
            let error = MappedFile::map(&file, length).expect_err("no such length").kind();
            assert_eq!(error, io::ErrorKind::InvalidInput, "{length} bytes of 64");
        }
    }

    #[test]
    fn a_file_system_that_may_need_room_for_what_is_written_again_is_left_alone() {
        let file = File::open("/sys/devices/system/cpu/online").expect("a file with a length");
        let error = MappedFile::map(&file, 8).expect_err("it is no file system for files").kind();
        assert_eq!(error, io::ErrorKind::Unsupported);
    }
}
