//! Settings of mimalloc.

use std::ffi::{c_int, c_long};

// Links the library that the functions below are part of.
use libmimalloc_sys as _;

#[expect(unsafe_code, reason = "the allocator is a library of C's")]
// SAFETY: they are declared as in `mimalloc.h` of version 3. Both take any number for an option.
unsafe extern "C" {
    safe fn mi_option_set(option: c_int, value: c_long);
    #[cfg(test)]
    safe fn mi_option_get(option: c_int) -> c_long;
}

/// `mi_option_purge_delay`: how long memory is kept that was freed, in milliseconds.
const PURGE_DELAY: c_int = 15;
/// `mi_option_generic_collect`: how many times a thread looks further for memory than where it was last,
/// until it looks which of its pages are free.
const GENERIC_COLLECT: c_int = 34;
/// `mi_option_arena_max_object_size`: how large a block may be, in KiB, to be made of memory that is
/// shared with others.
const ARENA_MAX_OBJECT_SIZE: c_int = 45;

/// The option values; the defaults of mimalloc are 1,000, 10,000 and 2 GiB.
const SETTINGS: [(c_int, c_long); 3] =
    [(PURGE_DELAY, 100), (GENERIC_COLLECT, 1000), (ARENA_MAX_OBJECT_SIZE, 1024)];

/// Configures mimalloc to return freed memory early. Must be called before a second thread starts.
///
/// Blocks above 1 MiB, and the pages of 4 MiB in which it keeps those above 87 KiB, are mapped by
/// themselves: what is freed of them is given back at once, and what was never written takes no memory.
/// Made of what was used before, as mimalloc does by itself, they are resident as a whole.
pub fn keep_little() {
    for (option, value) in SETTINGS {
        mi_option_set(option, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_options() {
        // Where a version of the library numbers them otherwise, they are somewhere else.
        let before = SETTINGS.map(|(option, _)| mi_option_get(option));
        assert_eq!(before, [1000, 10_000, 2 * 1024 * 1024]);
        keep_little();
        assert_eq!(SETTINGS.map(|(option, _)| mi_option_get(option)), [100, 1000, 1024]);
    }
}
