//! Ends of the long values of a document, noted while it is checked: whoever reads it again passes over such a
//! value in one step, where it would look at each of its bytes.

/// Values of this length in bytes are noted: it takes longer to pass over them than to look them up.
pub(super) const NOTED_BYTES_MIN: usize = 64;
/// Containers are noted that stand in at most this many others, the document among them. Contents of a result
/// in a message are the deepest that is read.
pub(super) const NOTED_LEVELS: u32 = 7;
/// Bytes of a document for each value that is noted, at least: notes of 12 bytes take less than a fifth of it.
const BYTES_PER_NOTE: usize = 64;
/// First room for notes: a request of an agent has some hundreds.
const NOTES_AT_FIRST_MAX: usize = 512;
/// Shorter documents are read again in less time than notes take.
const NOTED_DOCUMENT_BYTES_MIN: usize = 4096;

/// Notes on the long values of one document, in the order of the text.
#[derive(Debug)]
pub(crate) struct SkipTable {
    notes: Vec<SkipNote>,
    notes_max: usize,
    /// Notes of the containers that are open, by their level.
    open: [u32; NOTED_LEVELS as usize],
}

impl Default for SkipTable {
    fn default() -> Self {
        Self::NONE
    }
}

/// Start and end of a long value, and the note behind it.
#[derive(Clone, Copy, Debug)]
struct SkipNote {
    /// Position of its first byte.
    start: u32,
    /// Position behind its last byte.
    end: u32,
    /// Index of the first note behind the value.
    next: u32,
}

impl SkipTable {
    /// A table for a text of which nothing is noted.
    pub(crate) const NONE: Self =
        Self { notes: Vec::new(), notes_max: 0, open: [u32::MAX; NOTED_LEVELS as usize] };

    /// A table for a document of this size. One that no note can point into gets none.
    pub(super) fn for_document(bytes: usize) -> Self {
        let is_noted = bytes >= NOTED_DOCUMENT_BYTES_MIN && u32::try_from(bytes).is_ok();
        let notes_max = if is_noted { bytes / BYTES_PER_NOTE } else { 0 };
        let notes = Vec::with_capacity((notes_max / 4).min(NOTES_AT_FIRST_MAX));
        Self { notes, notes_max, ..Self::NONE }
    }

    /// A table for lists of numbers, of which it has so many notes at most.
    pub(crate) fn for_lists(notes_max: usize) -> Self {
        Self { notes_max, ..Self::NONE }
    }

    /// Notes that a container begins in `level` others.
    #[inline(always)]
    pub(super) fn open(&mut self, level: u32, start: usize) {
        let index = self.push(start);
        if let Some(open) = self.open.get_mut(level as usize) {
            *open = index;
        }
    }

    /// Notes that the container ends that was opened last in `level` others.
    #[inline(always)]
    pub(super) fn close(&mut self, level: u32, end: usize) {
        let index = self.open.get(level as usize).map_or(usize::MAX, |index| *index as usize);
        let next = self.notes.len();
        let Some(note) = self.notes.get_mut(index) else { return };
        note.end = offset(end);
        note.next = offset(next);
        // A short one holds no long value: it is the last of the notes.
        if end - (note.start as usize) < NOTED_BYTES_MIN {
            self.notes.truncate(index);
        }
    }

    /// Notes a value that holds no other: a string, or a list that is passed over as a whole.
    pub(crate) fn add(&mut self, start: usize, end: usize) {
        if u32::try_from(end).is_err() {
            return;
        }
        let index = self.push(start);
        if let Some(note) = self.notes.get_mut(index as usize) {
            note.end = offset(end);
            note.next = index + 1;
        }
    }

    /// Bytes of memory for notes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.notes.len() * size_of::<SkipNote>()
    }

    /// Adds a note; the index is past all of them where there is no more room.
    #[inline(always)]
    fn push(&mut self, start: usize) -> u32 {
        let index = self.notes.len();
        if index >= self.notes_max {
            return u32::MAX;
        }
        self.notes.push(SkipNote { start: offset(start), end: 0, next: 0 });
        offset(index)
    }

    /// A reader of the notes on values from a position on.
    pub(crate) fn reader(&self, position: usize) -> SkipReader<'_> {
        let first = self.notes.partition_point(|note| (note.start as usize) < position);
        SkipReader { notes: self.notes.get(first..).unwrap_or_default(), passed: first }
    }
}

/// An offset in a document with notes, which is shorter than 4 GiB, or an index of one of them.
fn offset(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

/// Looks up notes at positions that only grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SkipReader<'a> {
    /// Notes on values that are not passed yet.
    notes: &'a [SkipNote],
    /// Number of notes before those.
    passed: usize,
}

impl SkipReader<'_> {
    /// Position behind the value that begins at a position, if it was noted.
    #[inline(always)]
    pub(crate) fn end_of(&mut self, position: usize) -> Option<usize> {
        while let [note, behind @ ..] = self.notes {
            if note.start as usize > position {
                return None;
            }
            if note.start as usize == position {
                let (end, next) = (note.end as usize, note.next as usize);
                self.notes = self.notes.get(next - self.passed..).unwrap_or_default();
                self.passed = next;
                return Some(end);
            }
            // A value that was read, not skipped: those in it may be skipped.
            self.notes = behind;
            self.passed += 1;
        }
        None
    }
}
