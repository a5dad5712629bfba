//! mimalloc, as the process has it.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_long};

use libmimalloc_sys as mimalloc;

#[expect(unsafe_code, reason = "the allocator is a library of C's")]
// SAFETY: they are declared as in `mimalloc.h` of version 3. Both take any number for an option.
unsafe extern "C" {
    safe fn mi_option_set(option: c_int, value: c_long);
    #[cfg(test)]
    safe fn mi_option_get(option: c_int) -> c_long;
}

/// The process's allocator.
///
/// What it is asked for as a rule, it gives with the alignment that is needed. Asked for one, it looks
/// whether that is so, which blocks above 1 KiB are never found to be: they are made larger, and searched
/// for their beginning when they are freed.
#[derive(Clone, Copy, Debug)]
pub struct Allocator;

/// Blocks of any length are aligned to this, in bytes.
const ALIGNED: usize = 8;
/// Blocks that are no shorter are aligned to this, in bytes: mimalloc's `MI_MAX_ALIGN_SIZE`.
const ALIGNED_AT_LENGTH: usize = 16;

/// Whether any block of this length is aligned as it has to be.
const fn is_aligned_anyway(bytes: usize, align: usize) -> bool {
    align <= ALIGNED || align <= ALIGNED_AT_LENGTH && bytes >= ALIGNED_AT_LENGTH
}

#[expect(unsafe_code, reason = "an allocator hands out memory")]
// SAFETY: mimalloc gives blocks that are as long as they are asked to be, nobody else's, and aligned to
// what they are asked to be or, where they are not asked, as `is_aligned_anyway` says; or null. It takes
// back and lengthens any block of its own, however it was made.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (bytes, align) = (layout.size(), layout.align());
        // SAFETY: it takes any length, and any power of two.
        unsafe {
            match is_aligned_anyway(bytes, align) {
                true => mimalloc::mi_malloc(bytes).cast(),
                false => mimalloc::mi_malloc_aligned(bytes, align).cast(),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (bytes, align) = (layout.size(), layout.align());
        // SAFETY: it takes any length, and any power of two.
        unsafe {
            match is_aligned_anyway(bytes, align) {
                true => mimalloc::mi_zalloc(bytes).cast(),
                false => mimalloc::mi_zalloc_aligned(bytes, align).cast(),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: whoever calls this gives back a block of this allocator's.
        unsafe { mimalloc::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let align = layout.align();
        // SAFETY: whoever calls this gives a block of this allocator's; it takes any length, and any power
        // of two.
        unsafe {
            match is_aligned_anyway(bytes, align) {
                true => mimalloc::mi_realloc(block.cast(), bytes).cast(),
                false => mimalloc::mi_realloc_aligned(block.cast(), bytes, align).cast(),
            }
        }
    }
}

/// `mi_option_purge_delay`: how long memory is kept that was freed, in milliseconds.
const PURGE_DELAY: c_int = 15;
/// `mi_option_generic_collect`: how many times a thread looks further for memory than where it was last,
/// until it looks which of its pages are free.
const GENERIC_COLLECT: c_int = 34;
/// `mi_option_arena_max_object_size`: how large a block may be, in KiB, to be made of memory that is
/// shared with others.
const ARENA_MAX_OBJECT_SIZE: c_int = 45;

/// What the options are set to, which mimalloc has at 1,000, 10,000 and 2 GiB.
const SETTINGS: [(c_int, c_long); 3] =
    [(PURGE_DELAY, 100), (GENERIC_COLLECT, 1000), (ARENA_MAX_OBJECT_SIZE, 1024)];

/// Has mimalloc keep little of what was freed. Called before there is a second thread.
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

    /// What stands at a place of a block.
    fn byte(at: usize) -> u8 {
        at.to_le_bytes()[0]
    }

    /// A block's bytes, which were written.
    #[expect(unsafe_code, reason = "an allocator hands out memory")]
    fn content<'a>(block: *mut u8, bytes: usize) -> &'a mut [u8] {
        // SAFETY: the block has so many, and the test lets go of them before it gives the block back.
        unsafe { std::slice::from_raw_parts_mut(block, bytes) }
    }

    fn is_filled(block: *mut u8, bytes: usize) -> bool {
        content(block, bytes).iter().enumerate().all(|(at, found)| *found == byte(at))
    }

    #[test]
    #[expect(unsafe_code, reason = "an allocator hands out memory")]
    fn blocks_are_aligned_and_keep_what_stands_in_them() {
        // Many of one length at a time, since a page's first block is aligned to more than its others.
        const BLOCKS: usize = 32;
        let lengths =
            (1..300).chain([511, 512, 1_000, 1_136, 2_496, 5_600, 8_192, 70_000, 300_000]);
        for (bytes, align) in
            lengths.flat_map(|bytes| [1, 2, 4, 8, 16, 32, 64, 4096].map(|align| (bytes, align)))
        {
            let layout = Layout::from_size_align(bytes, align).expect("a layout");
            let longer = bytes + bytes / 3 + 1;
            let grown = Layout::from_size_align(longer, align).expect("a layout");
            let blocks: Vec<*mut u8> = (0..BLOCKS.min(8_000_000 / bytes))
                .map(|_| {
                    // SAFETY: the length is not zero; the block is written before it is read, and given
                    // back below.
                    let block = unsafe {
                        let block = Allocator.alloc(layout);
                        block.write_bytes(0, bytes);
                        block
                    };
                    assert!(block.addr().is_multiple_of(align), "{layout:?}: {block:?}");
                    content(block, bytes)
                        .iter_mut()
                        .enumerate()
                        .for_each(|(at, it)| *it = byte(at));
                    block
                })
                .collect();
            for block in blocks {
                assert!(is_filled(block, bytes), "{layout:?}");
                // SAFETY: it was made with this layout, and the new length is not zero.
                let block = unsafe { Allocator.realloc(block, layout, longer) };
                assert!(block.addr().is_multiple_of(align), "{grown:?}: {block:?}");
                assert!(is_filled(block, bytes), "{grown:?}");
                // SAFETY: it has this layout now.
                unsafe { Allocator.dealloc(block, grown) };
            }
            // SAFETY: the length is not zero; it is given back.
            let zeroed = unsafe { Allocator.alloc_zeroed(layout) };
            assert!(zeroed.addr().is_multiple_of(align), "{layout:?}: {zeroed:?}");
            assert!(content(zeroed, bytes).iter().all(|byte| *byte == 0), "{layout:?}");
            // SAFETY: it was made with this layout.
            unsafe { Allocator.dealloc(zeroed, layout) };
        }
    }

    #[test]
    fn the_numbers_are_those_of_the_options() {
        // Where a version of the library numbers them otherwise, they are somewhere else.
        let before = SETTINGS.map(|(option, _)| mi_option_get(option));
        assert_eq!(before, [1000, 10_000, 2 * 1024 * 1024]);
        keep_little();
        assert_eq!(SETTINGS.map(|(option, _)| mi_option_get(option)), [100, 1000, 1024]);
    }
}
