//! Compiles the size limits of one body and of all bodies in memory.

use crate::document::{Document, Fault};
use crate::memory;
use crate::raw;
use crate::snapshot::IntakeLimits;
use crate::spans::DocumentPath;

/// Default memory for all bodies, if the machine has enough.
const ALL_BYTES_DEFAULT: usize = 512 << 20;
/// Default limit of one body.
const ONE_BYTES_DEFAULT: usize = 64 << 20;
/// Divisor of the process's memory: default share of bodies. Parsed bodies, sockets, streams and the ledger
/// need the rest.
const PART_OF_MEMORY: u64 = 4;

/// Size limits of bodies, in bytes.
pub(super) struct Bodies {
    /// The bytes that one body may have.
    pub(super) one: usize,
    /// The bytes that all bodies may take together.
    pub(super) all: usize,
    /// The memory that the process may use, as far as that is known.
    pub(super) memory: Option<u64>,
    /// True if `all` follows from that.
    pub(super) is_default: bool,
}

/// Compiles the limits of bodies.
pub(super) fn compile(document: &mut Document, raw: &raw::LimitsSection) -> Bodies {
    let memory = memory::limit();
    let is_default = raw.body_memory_max.is_none();
    let all = raw.body_memory_max.map_or_else(|| all_of(memory), |size| size.0);
    let path = DocumentPath::root().key("limits").key("body_max");
    let one = match raw.body_max {
        Some(requested) => {
            largest(document, &path, requested.0, all, is_default, "`body_memory_max`")
        }
        // A body that is changed on its way is in memory twice.
        None if is_default => ONE_BYTES_DEFAULT.min(all / 2),
        None => ONE_BYTES_DEFAULT.min(all),
    };
    Bodies { one, all, memory, is_default }
}

/// The default memory for all bodies, in bytes, on a machine with this much memory.
fn all_of(memory: Option<u64>) -> usize {
    let part = memory.map_or(usize::MAX, |memory| {
        usize::try_from(memory / PART_OF_MEMORY).unwrap_or(usize::MAX)
    });
    part.clamp(1 << 20, ALL_BYTES_DEFAULT)
}

/// The size of the largest body, of which `asked` was typed at `path`. It may not be larger than all
/// together; where these follow from the memory that there is, it is made smaller.
pub(super) fn largest(
    document: &mut Document,
    path: &DocumentPath,
    requested: usize,
    all: usize,
    is_default: bool,
    at_most: &str,
) -> usize {
    if requested <= all {
        return requested;
    }
    let message = "one body may be larger than all bodies together";
    let fault = Fault::at_value(path, message);
    document.note(if is_default {
        let help = format!(
            "{at_most} is {} here, a quarter of the memory that there is: bodies may be as large",
            in_mib(all)
        );
        fault.warning().help(help)
    } else {
        fault.help(format!("at most {at_most}"))
    });
    all
}

/// Size limit of a body that is configured outside `limits`: at most the memory of all bodies, with an error
/// or a warning if more was configured.
pub(super) fn largest_of(
    document: &mut Document,
    path: &DocumentPath,
    requested: usize,
    limits: &IntakeLimits,
) -> usize {
    let (all, is_default) = (limits.body_memory_bytes_max, limits.body_memory_is_default);
    largest(document, path, requested, all, is_default, "`body_memory_max` of `limits`")
}

/// Memory for the bodies of one account: its share, and never less than one of the largest with its upstream
/// copy.
pub(super) fn of_one_account(limits: &IntakeLimits, percent: u32, largest: usize) -> usize {
    let all = limits.body_memory_bytes_max;
    part_of(all, percent).max(largest.saturating_mul(2)).min(all)
}

/// A share of what there is, of which there is always one.
pub(super) fn part_of(all: usize, percent: u32) -> usize {
    let percent = usize::try_from(percent).unwrap_or(100);
    (all / 100 * percent + all % 100 * percent / 100).max(1)
}

/// A size for people.
fn in_mib(bytes: usize) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_take_a_quarter_of_the_memory_at_most() {
        for (memory_mib, all_mib) in
            [(None, 512), (Some(150), 37), (Some(1024), 256), (Some(4096), 512), (Some(2), 1)]
        {
            let all = all_of(memory_mib.map(|mib: u64| mib << 20));
            assert_eq!(all >> 20, all_mib, "{memory_mib:?} MiB");
        }
    }

    #[test]
    fn a_share_is_never_nothing() {
        for (all, percent, part) in [(10_000, 25, 2_500), (4, 25, 1), (1, 1, 1), (399, 50, 199)] {
            assert_eq!(part_of(all, percent), part, "{percent} % of {all}");
        }
        assert_eq!(part_of(usize::MAX, 100), usize::MAX);
    }
}
