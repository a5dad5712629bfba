//! The order of blocks that an upstream sends side by side.
//!
//! Every dialect numbers its blocks, and an upstream may send pieces of several in turn: two calls of
//! tools, or a text between the pieces of a call. Customers read one block after the other: the open one
//! as it comes, the others when it has ended, in the order in which they began.

use std::collections::VecDeque;
use std::mem::size_of;

use crate::part::AnswerPart;

/// Blocks of one answer, each with a key of the upstream's numbering.
pub(crate) struct Sequencer<K> {
    /// The block whose parts are passed on immediately.
    open: Option<K>,
    /// Later blocks in order; empty while no block is open.
    waiting: VecDeque<WaitingBlock<K>>,
    held_bytes: usize,
}

struct WaitingBlock<K> {
    key: K,
    pieces: Vec<AnswerPart<'static>>,
    has_ended: bool,
}

impl<K> Default for Sequencer<K> {
    fn default() -> Self {
        Self { open: None, waiting: VecDeque::new(), held_bytes: 0 }
    }
}

impl<K: Copy + PartialEq> Sequencer<K> {
    /// The key of the block whose pieces pass at once.
    pub(crate) fn open(&self) -> Option<K> {
        self.open
    }

    /// True if a block of this key has begun behind the open one and not ended.
    pub(crate) fn is_waiting(&self, key: K) -> bool {
        self.waiting.iter().any(|block| block.key == key && !block.has_ended)
    }

    /// Begins a block, before all that begin later. A block also begins with its first part.
    pub(crate) fn begin(&mut self, key: K) {
        if self.open.is_none() {
            self.open = Some(key);
        } else if self.open != Some(key) {
            self.waiting_block(key);
        }
    }

    /// Passes on a part of the open block, or queues it for its own block.
    pub(crate) fn push(
        &mut self,
        key: K,
        piece: AnswerPart<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) {
        if *self.open.get_or_insert(key) == key {
            return out(piece);
        }
        let grown = piece.text_bytes();
        let block = self.waiting_block(key);
        // Pieces are words or letters: each in a place of its own would take many times their length.
        let is_joined = block.pieces.last_mut().is_some_and(|last| last.join(&piece));
        if !is_joined {
            block.pieces.push(piece.into_owned());
        }
        let place = if is_joined { 0 } else { size_of::<AnswerPart<'_>>() };
        self.held_bytes += grown + place;
    }

    fn waiting_block(&mut self, key: K) -> &mut WaitingBlock<K> {
        let found = self.waiting.iter().rposition(|block| block.key == key && !block.has_ended);
        let place = found.unwrap_or_else(|| {
            self.held_bytes += size_of::<WaitingBlock<K>>();
            self.waiting.push_back(WaitingBlock { key, pieces: Vec::new(), has_ended: false });
            self.waiting.len() - 1
        });
        &mut self.waiting[place]
    }

    /// Ends a block. After the open one, queued blocks are passed on up to the first unfinished one, which
    /// becomes the open one.
    pub(crate) fn end(&mut self, key: K, out: &mut dyn FnMut(AnswerPart<'_>)) {
        if self.open != Some(key) {
            let mut waiting = self.waiting.iter_mut().rev();
            if let Some(block) = waiting.find(|block| block.key == key && !block.has_ended) {
                block.has_ended = true;
            }
            return;
        }
        self.open = None;
        while self.open.is_none()
            && let Some(block) = self.waiting.pop_front()
        {
            block.pieces.into_iter().for_each(&mut *out);
            // The first block that still grows passes its pieces at once from here on.
            self.open = (!block.has_ended).then_some(block.key);
        }
        // Counted anew: joined pieces have grown in place, and what has passed is gone.
        self.held_bytes = self.waiting.iter().map(WaitingBlock::held_bytes).sum();
    }

    /// Ends all blocks: nothing follows.
    pub(crate) fn end_all(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        while let Some(open) = self.open {
            self.end(open, out);
        }
    }

    /// True if a block waits.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Bytes of pieces that wait, with the places that they take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

impl<K> WaitingBlock<K> {
    fn held_bytes(&self) -> usize {
        let pieces = self.pieces.iter();
        let pieces = pieces.map(|piece| piece.text_bytes() + size_of::<AnswerPart<'_>>());
        size_of::<Self>() + pieces.sum::<usize>()
    }
}

/// Detects the end of a JSON object in pieces by its braces, for dialects that do not mark the end of a
/// call's input.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ObjectEnd {
    depth: u32,
    is_in_string: bool,
    is_escaped: bool,
    /// The object has ended, or what came is none.
    has_ended: bool,
    is_object: bool,
}

impl ObjectEnd {
    /// Processes the next piece of the JSON text.
    pub(crate) fn take(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match byte {
                _ if std::mem::take(&mut self.is_escaped) => {}
                b'\\' if self.is_in_string => self.is_escaped = true,
                b'"' => self.is_in_string = !self.is_in_string,
                _ if self.is_in_string => {}
                // Only a whole object can be an input: a list or a bare word waits for the end of
                // the answer.
                b'{' | b'[' => {
                    self.is_object |= self.depth == 0 && byte == b'{' && !self.has_ended;
                    self.depth = self.depth.saturating_add(1);
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.has_ended |= self.depth == 0;
                }
                _ => {}
            }
        }
    }

    /// True if the pieces so far form a complete object.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_object && self.has_ended && self.depth == 0 && !self.is_in_string
    }
}

/// Length and hash of a text passed on in pieces. A later repetition as a whole is compared with them, and
/// only its rest is passed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassedText {
    bytes: usize,
    hash: u64,
}

impl Default for PassedText {
    fn default() -> Self {
        // FNV-1a: <http://www.isthe.com/chongo/tech/comp/fnv/>.
        Self { bytes: 0, hash: 0xcbf2_9ce4_8422_2325 }
    }
}

impl PassedText {
    /// Records a piece that was passed on.
    pub(crate) fn take(&mut self, piece: &str) {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        self.hash = piece.bytes().fold(self.hash, step);
        self.bytes += piece.len();
    }

    /// Part of the complete text that has not been passed on; empty if the pieces belong to another text.
    pub(crate) fn rest<'t>(&self, full: &'t str) -> &'t str {
        let Some((begin, rest)) = full.split_at_checked(self.bytes) else { return "" };
        let mut same = Self::default();
        same.take(begin);
        if same.hash == self.hash { rest } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> AnswerPart<'static> {
        AnswerPart::Text(text.into())
    }

    #[test]
    fn the_open_block_passes_and_others_wait_for_their_turn() {
        let (mut blocks, mut read) = (Sequencer::default(), String::new());
        let mut out = |piece: AnswerPart<'_>| {
            if let AnswerPart::Text(text) = piece {
                read.push_str(&text);
            }
        };
        for (key, piece) in [(0, "a"), (1, "x"), (0, "b"), (2, "m"), (1, "y")] {
            blocks.push(key, text(piece), &mut out);
        }
        assert!(blocks.is_waiting(1) && !blocks.is_waiting(0));
        assert!(blocks.held_bytes() >= 3);
        blocks.end(1, &mut out);
        blocks.end(0, &mut out);
        assert_eq!(blocks.open(), Some(2));
        blocks.push(2, text("n"), &mut out);
        // A block may have a key again that has ended.
        blocks.push(1, text("z"), &mut out);
        blocks.end_all(&mut out);
        assert_eq!((read.as_str(), blocks.held_bytes(), blocks.open()), ("abxymnz", 0, None));
    }

    #[test]
    fn an_object_ends_with_its_last_brace() {
        for (pieces, is_complete) in [
            (&["{}"][..], true),
            (&["{\"a\": \"}", "\\\"\"", "}"], true),
            (&["{\"a\": [1, {", "}]"], false),
            (&["[1]"], false),
            (&["\"{}\""], false),
            (&["", " "], false),
        ] {
            let mut end = ObjectEnd::default();
            pieces.iter().for_each(|piece| end.take(piece));
            assert_eq!(end.is_complete(), is_complete, "{pieces:?}");
        }
    }

    #[test]
    fn the_rest_of_a_text_is_what_was_not_passed() {
        let mut passed = PassedText::default();
        assert_eq!(passed.rest("abc"), "abc");
        passed.take("a");
        passed.take("b");
        assert_eq!(passed.rest("abc"), "c");
        assert_eq!(passed.rest("xbc"), "", "another text");
        assert_eq!((passed.rest("ab"), passed.rest("a")), ("", ""));
    }
}
