//! The program's own file, as far as it is mapped.

use std::ffi::c_void;
use std::ops::Range;
use std::{fs, io};

use rustix::mm::{Advice, madvise};

/// Unmaps the resident part of the program's file, and returns the mapped bytes, resident or not. Code that
/// runs again is mapped from the page cache when it is touched, in pieces of 64 KiB.
///
/// A start executes functions that lie all over the program, and Linux maps the 64 KiB around each. They
/// are shared memory that it takes back when it is short, but until then they count as the process's.
///
/// # Errors
/// When it cannot be read what is mapped, or the kernel declines, as it does where memory is locked.
pub fn unmap_program() -> io::Result<usize> {
    let program = fs::read_link("/proc/self/exe")?;
    let program = program.to_str().ok_or(io::ErrorKind::InvalidData)?;
    let mappings = fs::read_to_string("/proc/self/smaps")?;
    let mut bytes = 0;
    for range in unchanged(&mappings, program) {
        let start: *mut c_void = std::ptr::with_exposed_provenance_mut(range.start);
        #[expect(unsafe_code, reason = "there is no other way to unmap pages")]
        // SAFETY: the range is a mapping of the program's file that nobody can write to, and that has no
        // page of its own: whoever reads it next gets the same bytes from the file, which the kernel lets
        // nobody write to while it is executed. The program is mapped for as long as the process lives.
        unsafe {
            madvise(start, range.len(), Advice::LinuxDontNeed)?;
        }
        bytes += range.len();
    }
    Ok(bytes)
}

/// Finds the unmodified mappings of `program`, in the format of `/proc/self/smaps`.
fn unchanged(mappings: &str, program: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut read_only = None;
    for line in mappings.lines() {
        if let Some(pages) = line.strip_prefix("Anonymous:") {
            // Relocations have been written to some, and breakpoints.
            found.extend(read_only.take().filter(|_| pages.trim() == "0 kB"));
        } else if let Some(range) = range(line) {
            read_only = is_read_only(line, program).then_some(range);
        }
    }
    found
}

/// The addresses that begin the line of a mapping.
fn range(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some(address(start)?..address(end)?)
}

/// `5581c0000000-5581c07ba000 r--p 00000000 fe:00 1573 /usr/bin/tollgate`
fn is_read_only(line: &str, program: &str) -> bool {
    let mut fields = line.splitn(6, ' ');
    let permissions = fields.nth(1).unwrap_or_default();
    let file = fields.nth(3).unwrap_or_default().trim_start();
    matches!(permissions, "r--p" | "r-xp") && file == program
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPPINGS: &str = "\
5581c0000000-5581c07ba000 r--p 00000000 fe:00 1573                       /opt/my tools/tollgate
Size:               7912 kB
Anonymous:             0 kB
VmFlags: rd mr mw me sd
5581c07ba000-5581c21bc000 r-xp 007b9000 fe:00 1573                       /opt/my tools/tollgate
Anonymous:             0 kB
5581c21bc000-5581c2250000 r--p 021bb000 fe:00 1573                       /opt/my tools/tollgate
Anonymous:           580 kB
5581c2250000-5581c2262000 rw-p 0224d000 fe:00 1573                       /opt/my tools/tollgate
Anonymous:             0 kB
5581c3000000-5581c3021000 rw-p 00000000 00:00 0                          [heap]
Anonymous:            40 kB
7f0000000000-7f0000100000 r-xp 00000000 fe:00 99                         /usr/lib/libc.so.6
Anonymous:             0 kB
7f0000200000-7f0000300000 r--s 00000000 fe:00 1573                       /opt/my tools/tollgate
Anonymous:             0 kB
";

    #[test]
    fn only_what_can_be_read_again_from_the_programs_own_file_is_unmapped() {
        let found = unchanged(MAPPINGS, "/opt/my tools/tollgate");
        assert_eq!(found, [0x5581_c000_0000..0x5581_c07b_a000, 0x5581_c07b_a000..0x5581_c21b_c000]);
        assert_eq!(unchanged(MAPPINGS, "/opt/my"), []);
        assert_eq!(unchanged("", "/opt/my tools/tollgate"), []);
    }

    #[test]
    fn the_process_goes_on_without_what_was_unmapped() {
        let resident = || {
            let status = fs::read_to_string("/proc/self/status").expect("a status");
            let line = status.lines().find(|line| line.starts_with("RssFile:")).expect("RssFile");
            line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("KiB")
        };
        let before = resident();
        let unmapped = unmap_program().expect("it is unmapped");
        let after = resident();
        assert!(unmapped > 1 << 20, "{unmapped} bytes");
        assert!(after < before, "{before} KiB, and then {after}");
    }
}
