//! Strings of which only the beginning is kept, and those that are cut between two pieces.

/// The longest key or word that is compared.
const WORD_BYTES_MAX: usize = 32;

/// A string of which a part is in the next piece.
#[derive(Debug)]
pub(super) struct CutString {
    pub(super) role: StringRole,
    pub(super) start: StartOfText<WORD_BYTES_MAX>,
    /// The part read so far ends within an escape.
    pub(super) ends_escaping: bool,
}

impl CutString {
    pub(super) fn new(role: StringRole) -> Self {
        Self { role, start: StartOfText::default(), ends_escaping: false }
    }
}

/// Purpose for which a string is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum StringRole {
    /// The number of its bytes.
    Text,
    /// The name of a member at the top level.
    Key,
    /// A key or a word among the members of a choice.
    Word,
}

/// The beginning of a text, at most `BYTES_MAX` bytes.
#[derive(Debug)]
pub(super) struct StartOfText<const BYTES_MAX: usize> {
    bytes: [u8; BYTES_MAX],
    pub(super) length: usize,
}

impl<const BYTES_MAX: usize> Default for StartOfText<BYTES_MAX> {
    fn default() -> Self {
        Self { bytes: [0; BYTES_MAX], length: 0 }
    }
}

impl<const BYTES_MAX: usize> StartOfText<BYTES_MAX> {
    pub(super) fn text(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Adds what follows, as far as there is room for it.
    pub(super) fn add(&mut self, text: &[u8]) {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        let length = room.len().min(text.len());
        for (place, byte) in room.iter_mut().zip(text) {
            *place = *byte;
        }
        self.length += length;
    }

    /// Adds what follows without its white space.
    pub(super) fn add_dense(&mut self, text: &[u8]) {
        let room = self.bytes.iter_mut().skip(self.length);
        for (place, byte) in room.zip(text.iter().filter(|byte| !byte.is_ascii_whitespace())) {
            *place = *byte;
            self.length += 1;
        }
    }
}
