//! mimalloc, as the process has it.

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

/// `mi_option_arena_max_object_size`: how large a block may be, in KiB, to be made of memory that is
/// shared with others.
const ARENA_MAX_OBJECT_SIZE: c_int = 45;
/// What is larger is mapped by itself, in KiB.
const SHARED_KIB_MAX: c_long = 1024;

/// Has blocks above 1 MiB, and the pages of 4 MiB in which mimalloc keeps those above 87 KiB, mapped by
/// themselves: what is freed of them is given back at once, and what was never written takes no memory.
/// Made of what was used before, as mimalloc does by itself, they are resident as a whole. Called before
/// there is a second thread.
pub fn map_large_blocks() {
    mi_option_set(ARENA_MAX_OBJECT_SIZE, SHARED_KIB_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_that_of_the_option() {
        // 2 GiB, which no other option has.
        assert_eq!(mi_option_get(ARENA_MAX_OBJECT_SIZE), 2 * 1024 * 1024);
        map_large_blocks();
        assert_eq!(mi_option_get(ARENA_MAX_OBJECT_SIZE), SHARED_KIB_MAX);
    }
}
