//! Buffer for a body that arrives in pieces.

use bytes::Bytes;
use tollgate_process_memory::Buffer;

/// Maximum number of bytes reserved for a declared length; untouched pages take no memory.
const RESERVED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A body as far as it has arrived.
#[derive(Default)]
pub(crate) struct GatheredBody {
    /// The only piece so far.
    first: Bytes,
    /// All pieces in one buffer, once there are several.
    all: Buffer,
}

impl GatheredBody {
    /// Number of bytes that have arrived.
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.all.as_ref().len()
    }

    /// Adds a piece of a body with this declared length, and returns all bytes so far.
    pub(crate) fn push(&mut self, piece: Bytes, length: Option<usize>) -> &[u8] {
        if self.len() == 0 && length.is_some_and(|length| length <= piece.len()) {
            // It came as a whole, as most do, and stays where it is.
            self.first = piece;
            return &self.first;
        }
        if self.all.as_ref().is_empty() {
            // What grows is copied, and takes up to three times its size meanwhile.
            let bytes = length.unwrap_or(0).min(RESERVED_BYTES_MAX);
            self.all = Buffer::with_capacity(bytes.max(self.first.len() + piece.len()));
            self.all.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.all.extend_from_slice(&piece);
        self.all.as_ref()
    }

    /// The whole body in one piece.
    pub(crate) fn into_whole(self) -> Bytes {
        if self.all.as_ref().is_empty() { self.first } else { self.all.freeze() }
    }
}
