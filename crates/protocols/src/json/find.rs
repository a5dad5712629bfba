//! Finds the bytes of JSON text that mean something, many at a time: a prompt can be megabytes of plain
//! text in one string, and an answer has dozens of strings of a few letters.

use wide::u8x16;

/// Bytes that are compared together.
const BLOCK_BYTES: usize = 16;
/// Blocks that are looked at one by one before the next byte that means something is taken to be far.
const NEAR_BLOCKS: usize = 4;
/// The last control character.
const CONTROL_MAX: u8 = 0x1F;
/// The bit in which `{` differs from `[`, and `}` from `]`.
const CURLY: u8 = b'{' ^ b'[';

/// The position of the first quote, backslash or control character from `at` on; the length of the
/// text where there is none.
#[inline]
pub(crate) fn plain_text_end(text: &[u8], at: usize) -> usize {
    let is_special = |byte: u8| matches!(byte, b'"' | b'\\' | ..=CONTROL_MAX);
    find(text, at, special, is_special, |text, at| find_far(text, at, special, is_special))
}

/// The position of the first quote or backslash from `at` on; the length of the text where there is
/// none.
#[inline]
pub(crate) fn quote_or_backslash(text: &[u8], at: usize) -> usize {
    let is_either = |byte: u8| matches!(byte, b'"' | b'\\');
    find(text, at, either, is_either, |text, at| {
        let rest = text.get(at..).unwrap_or_default();
        at + memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len())
    })
}

/// The position of the first quote or bracket of any kind from `at` on; the length of the text where
/// there is none.
#[inline]
pub(crate) fn structure(text: &[u8], at: usize) -> usize {
    let is_structural = |byte: u8| matches!(byte, b'"' | b'[' | b']' | b'{' | b'}');
    find(text, at, structural, is_structural, |text, at| {
        find_far(text, at, structural, is_structural)
    })
}

fn either(block: u8x16) -> u8x16 {
    equal(block, b'"') | equal(block, b'\\')
}

fn special(block: u8x16) -> u8x16 {
    either(block) | block.min(u8x16::splat(CONTROL_MAX)).simd_eq(block)
}

fn structural(block: u8x16) -> u8x16 {
    let curly = block | u8x16::splat(CURLY);
    equal(block, b'"') | equal(curly, b'{') | equal(curly, b'}')
}

fn equal(block: u8x16, byte: u8) -> u8x16 {
    block.simd_eq(u8x16::splat(byte))
}

/// The position of the first byte from `at` on that is looked for: `marks` sets all bits of each such
/// byte in a block, `is_found` knows one by itself, and `far` goes on where the first blocks have none.
#[inline(always)]
fn find(
    text: &[u8],
    at: usize,
    marks: impl Fn(u8x16) -> u8x16 + Copy,
    is_found: impl Fn(u8) -> bool,
    far: impl Fn(&[u8], usize) -> usize,
) -> usize {
    let (blocks, last) = text.get(at..).unwrap_or_default().as_chunks();
    let near = blocks.get(..NEAR_BLOCKS).unwrap_or(blocks);
    if let Some(position) = in_blocks(near, marks) {
        return at + position;
    }
    let behind = at + near.len() * BLOCK_BYTES;
    if near.len() == NEAR_BLOCKS {
        return far(text, behind);
    }
    behind + in_last(text, last, marks, is_found)
}

/// Finds what [`find`] does, where the next is likely to be far.
#[inline(never)]
fn find_far(
    text: &[u8],
    at: usize,
    marks: impl Fn(u8x16) -> u8x16 + Copy,
    is_found: impl Fn(u8) -> bool,
) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let (blocks, last) = rest.as_chunks();
    let (fours, _) = blocks.as_chunks::<4>();
    let is_plain = |four: &&[[u8; BLOCK_BYTES]; 4]| {
        let [a, b, c, d] = four.map(|block| marks(u8x16::new(block)));
        (a | b | c | d).to_bitmask() == 0
    };
    let plain = fours.iter().take_while(is_plain).count() * 4;
    let position = in_blocks(blocks.get(plain..).unwrap_or_default(), marks);
    at + match position {
        Some(position) => plain * BLOCK_BYTES + position,
        None => rest.len() - last.len() + in_last(text, last, marks, is_found),
    }
}

#[inline(always)]
fn in_blocks(blocks: &[[u8; BLOCK_BYTES]], marks: impl Fn(u8x16) -> u8x16) -> Option<usize> {
    let found = |block: &[u8; BLOCK_BYTES]| marks(u8x16::new(*block)).to_bitmask();
    let mut found = blocks.iter().map(found).enumerate();
    let (index, found) = found.find(|(_, found)| *found != 0)?;
    Some(index * BLOCK_BYTES + found.trailing_zeros() as usize)
}

/// The position in `last`, with which `text` ends, or its length: a whole block that ends with it is
/// looked at, where the text is as long as that.
#[inline(always)]
fn in_last(
    text: &[u8],
    last: &[u8],
    marks: impl Fn(u8x16) -> u8x16,
    is_found: impl Fn(u8) -> bool,
) -> usize {
    let Some(block) = text.last_chunk() else {
        return last.iter().position(|&byte| is_found(byte)).unwrap_or(last.len());
    };
    let found = marks(u8x16::new(*block)).to_bitmask() >> BLOCK_BYTES.saturating_sub(last.len());
    if found == 0 { last.len() } else { found.trailing_zeros() as usize }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Wherever the first of them is, in texts of all lengths: none is passed over, and none is
        /// seen that is not there.
        #[test]
        fn the_first_that_means_something_is_found(
            length in 0_usize..300,
            places in prop::collection::vec((0_usize..300, any::<u8>()), 0..4),
            filler in prop_oneof![Just(b'a'), Just(b' '), Just(0x20), Just(0x7F), Just(0xFF)],
            at in 0_usize..310,
        ) {
            let mut text = vec![filler; length];
            for (place, byte) in places {
                if let Some(there) = text.get_mut(place) {
                    *there = byte;
                }
            }
            let first = |of: fn(u8) -> bool| {
                let rest = text.get(at..).unwrap_or_default();
                at + rest.iter().position(|&byte| of(byte)).unwrap_or(rest.len())
            };
            let special = first(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F));
            prop_assert_eq!(plain_text_end(&text, at), special);
            let either = first(|byte| matches!(byte, b'"' | b'\\'));
            prop_assert_eq!(quote_or_backslash(&text, at), either);
            let structural = first(|byte| b"\"[]{}".contains(&byte));
            prop_assert_eq!(structure(&text, at), structural);
        }
    }
}
