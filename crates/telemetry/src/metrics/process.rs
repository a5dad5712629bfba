//! Metrics of this process from the kernel: the `process_*` names that dashboards expect.
//!
//! Read from `/proc` by hand: the `prometheus` crate's own collector counts processor time in whole
//! seconds and brings a second copy of two crates.

use std::fs;

/// Clock ticks per second in `/proc/self/stat`. Linux fixes it at 100 for what it shows to programs
/// (`USER_HZ`), on every architecture that this crate is built for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Figures of one reading of the kernel's files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProcessReading {
    /// User and system time since the start, in seconds.
    pub(super) cpu_seconds: f64,
    /// Resident memory in bytes.
    pub(super) resident_bytes: i64,
    /// The number of threads.
    pub(super) threads: i64,
    /// The number of open file descriptors.
    pub(super) fds_open: i64,
    /// The soft limit on file descriptors; -1 when there is none.
    pub(super) fds_max: i64,
}

/// Reads `/proc/self`; `None` where there is no such thing.
pub(super) fn read() -> Option<ProcessReading> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let fds = fs::read_dir("/proc/self/fd").ok()?.count();
    Some(ProcessReading {
        cpu_seconds: cpu_seconds(&stat)?,
        resident_bytes: number_after(&status, "VmRSS:")?.checked_mul(1024)?,
        threads: number_after(&status, "Threads:")?,
        // The directory that is being counted is open too.
        fds_open: i64::try_from(fds).ok()?.saturating_sub(1),
        fds_max: number_after(&limits, "Max open files").unwrap_or(-1),
    })
}

/// Fields 14 and 15 of proc(5) `stat`. The second field is the program's name in parentheses and may
/// hold spaces and parentheses itself, so counting starts behind the last one.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    Some((f64::from(ticks()?) + f64::from(ticks()?)) / TICKS_PER_SECOND)
}

/// The first word behind `label`, if it is a number.
fn number_after(text: &str, label: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_spaces_and_parentheses_shifts_nothing() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 3 0 1 2 3";
        assert_eq!(cpu_seconds(stat), Some(3.0), "250 and 50 ticks are three seconds");
        assert_eq!(cpu_seconds("7 (a) S 1"), None, "a short line is no reading");
    }

    #[test]
    fn limits_and_memory_are_found_by_their_labels() {
        let limits =
            "Limit Soft Hard\nMax open files            1024                 4096     files \n";
        assert_eq!(number_after(limits, "Max open files"), Some(1024));
        assert_eq!(number_after("VmPeak:\t 9 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12));
        assert_eq!(number_after("Max open files  unlimited", "Max open files"), None);
    }
}
