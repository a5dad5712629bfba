//! Finds the bytes of JSON text that mean something, many at a time: a prompt can be megabytes of plain
//! text in one string, and an answer has dozens of strings of a few letters.

use std::mem;

use wide::u8x16;

/// Number of bytes compared at once.
const BLOCK_BYTES: usize = 16;
/// Blocks in which a string that is not short is likely to end: ids and names of models do.
const NEAR_BLOCKS: usize = 4;
/// Bytes of which it is noted which are looked for: as many as a word has bits.
const GROUP_BYTES: usize = 64;
/// A bit for each byte of a block.
const ALL_BYTES: u32 = (1 << BLOCK_BYTES) - 1;
/// The bit in which small letters differ from capitals.
const LOWER_CASE: u8 = b'a' ^ b'A';
/// The last control character.
const CONTROL_MAX: u8 = 0x1F;
/// The bit in which `{` differs from `[`, and `}` from `]`.
const CURLY: u8 = b'{' ^ b'[';

/// The position of the first quote, backslash or control character from `at` on; the length of the
/// text where there is none.
#[inline(always)]
pub(crate) fn plain_text_end(text: &[u8], at: usize) -> usize {
    in_first_block(text, at, special).unwrap_or_else(|| find(text, at, special))
}

/// The position of the first quote or backslash from `at` on; the length of the text where there is
/// none.
pub(crate) fn quote_or_backslash(text: &[u8], at: usize) -> usize {
    in_near_blocks(text, at, either).unwrap_or_else(|at| {
        let rest = text.get(at..).unwrap_or_default();
        at + memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len())
    })
}

/// True if a string has an escape; it may be very long and is mostly short.
#[inline]
pub(super) fn has_backslash(text: &[u8]) -> bool {
    if text.len() < BLOCK_BYTES {
        return text.contains(&b'\\');
    }
    memchr::memchr(b'\\', text).is_some()
}

/// The position of the first quote or bracket of any kind from `at` on; the length of the text where
/// there is none.
#[inline(always)]
pub(crate) fn structure(text: &[u8], at: usize) -> usize {
    in_first_block(text, at, structural).unwrap_or_else(|| find(text, at, structural))
}

/// The position of the quote that ends a string, if it is among the next few bytes and all before it is
/// plain text: so most keys and most words end. `at` is behind the quote that begins it.
#[inline(always)]
pub(crate) fn short_string_end(text: &[u8], at: usize) -> Option<usize> {
    in_first_block(text, at, special).filter(|&end| text.get(end) == Some(&b'"'))
}

/// A position from `at` on up to which there is no quote, backslash, bracket or bar, found in wide steps: those of
/// a list of numbers, which can be megabytes long, take the fewest instructions.
pub(crate) fn numbers_end(text: &[u8], at: usize) -> usize {
    let (groups, _) = text.get(at..).unwrap_or_default().as_chunks();
    let is_numbers = |group: &&[u8; GROUP_BYTES]| is_below_letters(group) || is_plain(group, mark);
    at + groups.iter().take_while(is_numbers).count() * GROUP_BYTES
}

/// Position of the first byte from `at` on that is neither a letter of base64, of either alphabet, nor `=`; the
/// length of the text without one.
pub(super) fn base64_end(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let (groups, _) = rest.as_chunks();
    let plain = groups.iter().take_while(|group| is_base64(group)).count() * GROUP_BYTES;
    let behind = rest.get(plain..).unwrap_or_default();
    at + plain + behind.iter().position(|byte| !is_base64_letter(*byte)).unwrap_or(behind.len())
}

/// True for a letter of base64, of either alphabet, and for `=`.
pub(super) fn is_base64_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_')
}

/// The positions from `at` on of quotes, backslashes and brackets of any kind, in their order. There are
/// those of bars as well, which cost less to pass over than to tell from brackets.
pub(crate) fn marks(text: &[u8], at: usize) -> Positions<'_, impl Fn(u8x16) -> u8x16> {
    Positions::new(text, at, mark)
}

/// The positions from `at` on of quotes, backslashes and control characters, in their order.
pub(super) fn special_marks(text: &[u8], at: usize) -> Positions<'_, impl Fn(u8x16) -> u8x16> {
    Positions::new(text, at, special)
}

/// The positions from `at` on of quotes and backslashes, in their order.
pub(crate) fn string_marks(text: &[u8], at: usize) -> Positions<'_, impl Fn(u8x16) -> u8x16> {
    Positions::new(text, at, either)
}

/// The positions of the bytes that are looked for. Each byte of the text is compared once, however many
/// of them there are.
pub(crate) struct Positions<'a, Marks> {
    text: &'a [u8],
    /// Sets all bits of each byte that is looked for.
    marks: Marks,
    /// Groups of bytes that are not searched yet.
    groups: &'a [[u8; GROUP_BYTES]],
    /// Bytes after the last full group.
    last: &'a [u8],
    /// End of the group whose bits are in `left`.
    group_end: usize,
    /// Matches of the group that are left, as bits.
    left: u64,
}

impl<'a, Marks: Fn(u8x16) -> u8x16> Positions<'a, Marks> {
    #[inline(always)]
    fn new(text: &'a [u8], at: usize, marks: Marks) -> Self {
        let (groups, last) = text.get(at..).unwrap_or_default().as_chunks();
        Self { text, marks, groups, last, group_end: at, left: 0 }
    }

    /// Continues at another position.
    pub(crate) fn go_on(&mut self, at: usize) {
        let (groups, last) = self.text.get(at..).unwrap_or_default().as_chunks();
        (self.groups, self.last, self.group_end, self.left) = (groups, last, at, 0);
    }

    /// The next position among the bytes that were searched already.
    #[inline(always)]
    pub(crate) fn next_near(&mut self) -> Option<usize> {
        if self.left == 0 { None } else { self.next() }
    }

    /// Position up to which the text was searched.
    pub(crate) fn searched_end(&self) -> usize {
        self.group_end.min(self.text.len())
    }

    /// Searches groups up to the first with a match.
    #[inline(always)]
    fn look(&mut self) {
        while let Some((group, behind)) = self.groups.split_first() {
            self.left = bits(group, &self.marks);
            self.groups = behind;
            self.group_end += GROUP_BYTES;
            if self.left != 0 {
                return;
            }
            // Where one group has nothing, many more are likely to have nothing.
            let plain = behind.iter().take_while(|group| is_plain(group, &self.marks)).count();
            self.groups = behind.get(plain..).unwrap_or_default();
            self.group_end += plain * GROUP_BYTES;
        }
        if !self.last.is_empty() {
            self.group_end += GROUP_BYTES;
            self.left = bits_of_last(mem::take(&mut self.last), &self.marks);
        }
    }
}

impl<Marks: Fn(u8x16) -> u8x16> Iterator for Positions<'_, Marks> {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.left == 0 {
            self.look();
        }
        // There are no bits where nothing is left of the text.
        let position = self.group_end + self.left.trailing_zeros() as usize - GROUP_BYTES;
        let is_there = self.left != 0;
        self.left &= self.left.wrapping_sub(1);
        is_there.then_some(position)
    }
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

/// Between `{` and `}` stands the bar, and between `[` and `]` the backslash.
fn mark(block: u8x16) -> u8x16 {
    let behind_open = (block | u8x16::splat(CURLY)) - u8x16::splat(b'{');
    equal(block, b'"') | behind_open.min(u8x16::splat(b'}' - b'{')).simd_eq(behind_open)
}

fn equal(block: u8x16, byte: u8) -> u8x16 {
    block.simd_eq(u8x16::splat(byte))
}

/// True if all bytes of a group can be of base64. Nearly all base64 has the standard alphabet, and `=` only at
/// its end.
#[inline(always)]
fn is_base64(group: &[u8; GROUP_BYTES]) -> bool {
    are_zero(group, no_standard_base64) || are_zero(group, no_base64)
}

/// True if all bytes of a group become zero.
#[inline(always)]
fn are_zero(group: &[u8; GROUP_BYTES], bytes: impl Fn(u8x16) -> u8x16) -> bool {
    let [a, b, c, d] = found(group, bytes);
    (a | b | c | d).simd_eq(u8x16::ZERO).to_bitmask() == ALL_BYTES
}

/// Zero for each byte that base64 of the standard alphabet has before its padding.
#[inline(always)]
fn no_standard_base64(block: u8x16) -> u8x16 {
    let above = |bytes: u8x16, first: u8, last: u8| {
        (bytes - u8x16::splat(first)).saturating_sub(u8x16::splat(last - first))
    };
    let no_letter = above(block | u8x16::splat(LOWER_CASE), b'a', b'z');
    // Between the slash and the digits stands nothing.
    no_letter.min(above(block, b'/', b'9')).min(block ^ u8x16::splat(b'+'))
}

/// Zero for each byte that base64 of either alphabet has, padding included.
fn no_base64(block: u8x16) -> u8x16 {
    let others = [b'=', b'-', b'_'].map(|byte| block ^ u8x16::splat(byte));
    others.into_iter().fold(no_standard_base64(block), u8x16::min)
}

/// The position of the first byte that is looked for, if it is among the next few: most keys and most
/// words end there, and are found in the place where they are read.
#[inline(always)]
fn in_first_block(text: &[u8], at: usize, marks: impl Fn(u8x16) -> u8x16) -> Option<usize> {
    let block = text.get(at..)?.first_chunk()?;
    let found = marks(u8x16::new(*block)).to_bitmask();
    (found != 0).then(|| at + found.trailing_zeros() as usize)
}

/// The position of the first byte from `at` on that is looked for, or where the text ends, if that is in
/// the next blocks; else where one has to go on.
#[inline(always)]
fn in_near_blocks(
    text: &[u8],
    mut at: usize,
    marks: impl Fn(u8x16) -> u8x16,
) -> Result<usize, usize> {
    for _ in 0..NEAR_BLOCKS {
        let rest = text.get(at..).unwrap_or_default();
        let Some(block) = rest.first_chunk() else {
            let found = bits_of_end(rest, marks).trailing_zeros() as usize;
            return Ok(at + found.min(rest.len()));
        };
        let found = marks(u8x16::new(*block)).to_bitmask();
        if found != 0 {
            return Ok(at + found.trailing_zeros() as usize);
        }
        at += BLOCK_BYTES;
    }
    Err(at)
}

/// Matches in a text shorter than a block, as bits.
#[inline(always)]
fn bits_of_end(end: &[u8], marks: impl Fn(u8x16) -> u8x16) -> u32 {
    let mut block = [0; BLOCK_BYTES];
    if let Some(place) = block.get_mut(..end.len()) {
        place.copy_from_slice(end);
    }
    marks(u8x16::new(block)).to_bitmask()
}

/// True if no byte of a group matches.
#[inline(always)]
fn is_plain(group: &[u8; GROUP_BYTES], marks: impl Fn(u8x16) -> u8x16) -> bool {
    let [a, b, c, d] = found(group, marks);
    (a | b | c | d).to_bitmask() == 0
}

/// True if no byte of a group is a quote, or behind the capital letters: no bracket is either.
#[inline(always)]
fn is_below_letters(group: &[u8; GROUP_BYTES]) -> bool {
    let [a, b, c, d] = found(group, |block| block);
    let highest = a.max(b).max(c.max(d));
    let quotes = [a, b, c, d].map(|block| equal(block, b'"'));
    let any_quote = quotes.into_iter().fold(u8x16::ZERO, |any, quote| any | quote);
    (highest.saturating_sub(u8x16::splat(b'Z')) | any_quote).simd_eq(u8x16::ZERO).to_bitmask()
        == ALL_BYTES
}

/// Matches in a group, as bits.
#[inline(always)]
fn bits(group: &[u8; GROUP_BYTES], marks: impl Fn(u8x16) -> u8x16) -> u64 {
    let [a, b, c, d] = found(group, marks).map(|found| u64::from(found.to_bitmask()));
    a | b << BLOCK_BYTES | c << (2 * BLOCK_BYTES) | d << (3 * BLOCK_BYTES)
}

#[inline(always)]
fn found(group: &[u8; GROUP_BYTES], marks: impl Fn(u8x16) -> u8x16) -> [u8x16; 4] {
    let (blocks, _) = group.as_chunks::<BLOCK_BYTES>();
    [0, 1, 2, 3].map(|index| blocks.get(index).map_or(u8x16::ZERO, |it| marks(u8x16::new(*it))))
}

/// Matches in the last bytes of a text, fewer than a group.
#[inline(never)]
fn bits_of_last(last: &[u8], marks: impl Fn(u8x16) -> u8x16) -> u64 {
    let mut group = [0; GROUP_BYTES];
    if let Some(place) = group.get_mut(..last.len()) {
        place.copy_from_slice(last);
    }
    let is_there = u64::MAX.unbounded_shl(u32::try_from(last.len()).unwrap_or(u32::MAX));
    bits(&group, marks) & !is_there
}

/// Position of the first matching byte from `at`; the length of the text without one.
#[inline(never)]
fn find(text: &[u8], at: usize, marks: impl Fn(u8x16) -> u8x16) -> usize {
    in_near_blocks(text, at, &marks)
        .unwrap_or_else(|at| Positions::new(text, at, marks).next().unwrap_or(text.len().max(at)))
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
            filler in prop_oneof![Just(b'a'), Just(b'_'), Just(b' '), Just(0x20), Just(0x7F), Just(0xFF)],
            at in 0_usize..310,
        ) {
            let mut text = vec![filler; length];
            for (place, byte) in places {
                if let Some(there) = text.get_mut(place) {
                    *there = byte;
                }
            }
            let first = |of: &dyn Fn(u8) -> bool| {
                let rest = text.get(at..).unwrap_or_default();
                at + rest.iter().position(|&byte| of(byte)).unwrap_or(rest.len())
            };
            let special = first(&|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F));
            prop_assert_eq!(plain_text_end(&text, at), special);
            let either = first(&|byte| matches!(byte, b'"' | b'\\'));
            prop_assert_eq!(quote_or_backslash(&text, at), either);
            let structural = first(&|byte| b"\"[]{}".contains(&byte));
            prop_assert_eq!(structure(&text, at), structural);
            let short = Some(special).filter(|end| text.get(*end) == Some(&b'"'));
            let end = short_string_end(&text, at);
            prop_assert!(end == short || end.is_none() && special + BLOCK_BYTES > at + BLOCK_BYTES);
            let all = |of: &[u8]| -> Vec<usize> {
                let bytes = text.iter().enumerate().skip(at);
                bytes.filter(|(_, byte)| of.contains(byte)).map(|(position, _)| position).collect()
            };
            let of_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte);
            prop_assert_eq!(base64_end(&text, at), first(&|byte| !of_base64(byte)));
            prop_assert_eq!(marks(&text, at).collect::<Vec<_>>(), all(b"\"\\[]{}|"));
            let numbers = numbers_end(&text, at);
            let end = first(&|byte| b"\"\\[]{}|".contains(&byte));
            prop_assert!((at..=end).contains(&numbers) && numbers + GROUP_BYTES > end.min(length));
            prop_assert_eq!(string_marks(&text, at).collect::<Vec<_>>(), all(b"\"\\"));
        }
    }
}
