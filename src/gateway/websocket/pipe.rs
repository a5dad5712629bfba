//! The bytes between a connection and the library that reads its frames.

use std::io::{self, Cursor, Read, Write};

use bytes::{Buf as _, Bytes};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::OpCode;

/// The bytes on their way between a connection and its frames. What is read of it at a time ends with a
/// frame, so that nothing of the next one is in the context's buffer.
#[derive(Default)]
pub(super) struct Pipe {
    unread: Bytes,
    /// Bytes to be sent over the connection.
    pub(super) unsent: Vec<u8>,
    /// Bytes of the current frame that are still to come.
    frame_left: u64,
    /// Bytes of the current frame that were read.
    frame_read: usize,
    /// Contribution of the frame to its message, once it is complete.
    adds: FramePart,
    /// Bytes of the frames before, whose message goes on. The context has copied them.
    fragments: usize,
    /// Bytes of the largest frame since the last message: so much is in the context's buffer.
    pub(super) largest_frame: usize,
}

/// Contribution of a frame to its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FramePart {
    /// Nothing, as a control frame.
    #[default]
    Nothing,
    /// A part behind which others come.
    Part,
    /// The end of the missing bytes.
    End,
}

impl Pipe {
    /// These bytes have come over the connection.
    pub(super) fn feed(&mut self, bytes: Bytes) {
        self.unread = match self.unread.is_empty() {
            true => bytes,
            false => [&self.unread[..], &bytes].concat().into(),
        };
    }

    /// Copies the remaining bytes, at most the beginning of a header, so that the buffer they came in can be
    /// freed.
    pub(super) fn own_rest(&mut self) {
        self.unread = Bytes::copy_from_slice(&self.unread);
    }

    /// Memory of what was read or fed since the last message, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        let buffer = self.frame_read.max(self.largest_frame);
        buffer + self.fragments + self.unread.len()
    }

    /// True within a message, or a frame, that is not complete.
    pub(super) fn is_within_message(&self) -> bool {
        self.frame_read > 0 || self.fragments > 0 || !self.unread.is_empty()
    }

    /// A message is whole: what comes belongs to the next one.
    pub(super) fn end_message(&mut self) {
        (self.fragments, self.largest_frame) = (0, 0);
    }

    /// Begins a frame if its header is complete.
    fn begin_frame(&mut self) {
        let mut cursor = Cursor::new(&self.unread);
        let (left, adds) = match FrameHeader::parse(&mut cursor) {
            Ok(None) => (0, FramePart::Nothing),
            Ok(Some((header, length))) => {
                let adds = match (header.opcode, header.is_final) {
                    (OpCode::Data(_), true) => FramePart::End,
                    (OpCode::Data(_), false) => FramePart::Part,
                    (OpCode::Control(_), _) => FramePart::Nothing,
                };
                (cursor.position().saturating_add(length), adds)
            }
            // The context finds the same, and says what it is.
            Err(_) => (self.unread.len() as u64, FramePart::Nothing),
        };
        (self.frame_left, self.adds) = (left, adds);
    }

    fn end_frame(&mut self) {
        let bytes = std::mem::take(&mut self.frame_read);
        match self.adds {
            FramePart::Nothing => {}
            FramePart::Part => {
                self.fragments = self.fragments.saturating_add(bytes);
                self.largest_frame = self.largest_frame.max(bytes);
            }
            FramePart::End => self.largest_frame = self.largest_frame.max(bytes),
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.frame_left == 0 {
            self.begin_frame();
        }
        let left = usize::try_from(self.frame_left).unwrap_or(usize::MAX);
        let count = bytes.len().min(self.unread.len()).min(left);
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.unread.copy_to_slice(bytes.get_mut(..count).unwrap_or_default());
        self.frame_left -= count as u64;
        self.frame_read += count;
        if self.frame_left == 0 {
            self.end_frame();
        }
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unsent.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
