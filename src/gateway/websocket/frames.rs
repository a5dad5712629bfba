//! The frames of a WebSocket, without a socket: bytes in, messages out, and back.
//!
//! `tungstenite` holds them to the protocol: frames of customers are masked, control frames are short and
//! whole, texts are UTF-8, and neither a frame nor a message is larger than is allowed.

use std::io;

use bytes::Bytes;
use tungstenite::error::{CapacityError, Error};
use tungstenite::protocol::frame::Frame;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig, WebSocketContext};

use super::pipe::Pipe;

/// Bytes of one read; a longer frame grows the buffer, which is given back after its message.
const READ_BYTES: usize = 4 * 1024;

/// The frames of one connection.
pub(super) struct FrameReader {
    context: WebSocketContext,
    config: WebSocketConfig,
    pipe: Pipe,
    /// A protocol violation occurred: later frames are ignored.
    is_broken: bool,
}

/// A message or control frame of the peer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PeerMessage {
    /// A message of the customer.
    Text(Bytes),
    /// A frame that says nothing to the gateway, such as a ping, whose answer is ready to be sent.
    Control,
    /// The other side closes, and its answer is ready to be sent.
    Close,
}

/// Protocol error that ends a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FrameError {
    /// Close code for the violation.
    pub(super) code: CloseCode,
    /// Reason phrase of the close frame.
    pub(super) reason: &'static str,
}

impl FrameReader {
    /// Frames of a customer, none of whose messages may be larger than `bytes_max`.
    pub(super) fn of_customer(bytes_max: usize) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            // What is sent is in the pipe at once.
            .write_buffer_size(0)
            .max_message_size(Some(bytes_max))
            .max_frame_size(Some(bytes_max));
        let context = WebSocketContext::new(Role::Server, Some(config));
        Self { context, config, pipe: Pipe::default(), is_broken: false }
    }

    /// These bytes have come over the connection.
    pub(super) fn feed(&mut self, bytes: Bytes) {
        if !self.is_broken {
            self.pipe.feed(bytes);
        }
    }

    /// Memory of an incomplete message, in bytes; 0 between messages.
    pub(super) fn held_bytes(&self) -> usize {
        self.pipe.held_bytes()
    }

    /// True within a message, or a frame, that is not complete.
    pub(super) fn is_within_message(&self) -> bool {
        self.pipe.is_within_message()
    }

    /// True if the next byte begins a message.
    pub(super) fn is_between_messages(&self) -> bool {
        !self.is_broken && !self.pipe.is_within_message()
    }

    /// The next message or control frame; `None` until more bytes have arrived.
    ///
    /// # Errors
    /// What is against the protocol, or too large.
    pub(super) fn next(&mut self) -> Result<Option<PeerMessage>, FrameError> {
        if self.is_broken {
            // The frames behind it begin nobody knows where.
            return Ok(None);
        }
        let next = self.read();
        self.is_broken = next.is_err();
        match &next {
            Ok(Some(PeerMessage::Text(text))) => self.end_message(text.len()),
            Ok(None) => self.pipe.own_rest(),
            Ok(_) | Err(_) => {}
        }
        next
    }

    /// A message of so many bytes is whole. The context keeps the buffer of its largest frame for as long as
    /// the connection is open: another context, which begins between two frames as well, has a small one.
    fn end_message(&mut self, bytes: usize) {
        let is_large = bytes.max(self.pipe.largest_frame) > READ_BYTES;
        self.pipe.end_message();
        if is_large && self.context.can_write() {
            self.context = WebSocketContext::new(Role::Server, Some(self.config));
        }
    }

    fn read(&mut self) -> Result<Option<PeerMessage>, FrameError> {
        match self.context.read(&mut self.pipe) {
            Ok(Message::Text(text)) => Ok(Some(PeerMessage::Text(text.into()))),
            Ok(Message::Binary(_)) => {
                Err(FrameError { code: CloseCode::Unsupported, reason: "Messages are JSON texts." })
            }
            Ok(Message::Ping(_) | Message::Pong(_)) => Ok(Some(PeerMessage::Control)),
            // Only a writer has these.
            Ok(Message::Frame(_)) => Ok(None),
            Ok(Message::Close(_)) => {
                // Flushing says that the connection is closed, which is so.
                drop(self.context.flush(&mut self.pipe));
                Ok(Some(PeerMessage::Close))
            }
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(Error::ConnectionClosed | Error::AlreadyClosed) => Ok(Some(PeerMessage::Close)),
            Err(Error::Capacity(CapacityError::MessageTooLong { .. })) => {
                Err(FrameError { code: CloseCode::Size, reason: "The message is too large." })
            }
            Err(Error::Utf8(_)) => {
                Err(FrameError { code: CloseCode::Invalid, reason: "The message is not UTF-8." })
            }
            Err(_) => Err(FrameError { code: CloseCode::Protocol, reason: "Protocol violation." }),
        }
    }

    /// Queues a message for sending.
    pub(super) fn send(&mut self, text: Bytes) {
        // What upstreams send as JSON is UTF-8; what is not is of no use to anybody.
        if !self.context.can_write() || std::str::from_utf8(&text).is_err() {
            return;
        }
        // Not through the context, whose buffer would keep the size of the largest event.
        let frame = Frame::message(text, OpCode::Data(Data::Text), true);
        self.pipe.unsent.reserve_exact(frame.len());
        // The pipe takes everything.
        drop(frame.format(&mut self.pipe.unsent));
    }

    /// Queues a ping for sending.
    pub(super) fn ping(&mut self) {
        self.write(Message::Ping(Bytes::new()));
    }

    /// Queues a close frame for sending.
    pub(super) fn close(&mut self, code: CloseCode, reason: &'static str) {
        let frame = CloseFrame { code, reason: reason.into() };
        // One that is closed already says nothing more.
        drop(self.context.close(&mut self.pipe, Some(frame)));
    }

    fn write(&mut self, message: Message) {
        // The pipe takes everything; what comes behind a close frame is not sent.
        drop(self.context.write(&mut self.pipe, message));
        drop(self.context.flush(&mut self.pipe));
    }

    /// The bytes to be sent.
    pub(super) fn take_unsent(&mut self) -> Bytes {
        std::mem::take(&mut self.pipe.unsent).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of a customer: its first byte, and its payload, masked.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut bytes = vec![first];
        match payload.len() {
            short @ 0..=125 => bytes.push(0x80 | u8::try_from(short).expect("short")),
            long => {
                bytes.push(0x80 | 126);
                bytes.extend(u16::try_from(long).expect("long").to_be_bytes());
            }
        }
        bytes.extend(mask);
        bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        bytes
    }

    fn read(frames: &mut FrameReader) -> Vec<Result<PeerMessage, CloseCode>> {
        let next = || match frames.next() {
            Ok(Some(PeerMessage::Close)) => None,
            Ok(received) => received.map(Ok),
            Err(broken) => Some(Err(broken.code)),
        };
        let mut all = Vec::new();
        let mut next = next;
        while let Some(one) = next() {
            let is_end = one.is_err();
            all.push(one);
            if is_end {
                break;
            }
        }
        all
    }

    fn text(text: &str) -> Result<PeerMessage, CloseCode> {
        Ok(PeerMessage::Text(Bytes::copy_from_slice(text.as_bytes())))
    }

    #[test]
    fn messages_come_out_however_they_are_cut_and_pings_are_answered() {
        let sent = [
            frame(0x81, b"one"),
            frame(0x01, b"t"),
            frame(0x89, b"ping"),
            frame(0x80, b"wo"),
            frame(0x81, &[b'x'; 300]),
        ]
        .concat();
        for size in [1, 2, 7, sent.len()] {
            let mut frames = FrameReader::of_customer(1000);
            let mut all = Vec::new();
            for piece in sent.chunks(size) {
                frames.feed(Bytes::copy_from_slice(piece));
                all.extend(read(&mut frames));
            }
            let long = "x".repeat(300);
            assert_eq!(all, [text("one"), Ok(PeerMessage::Control), text("two"), text(&long)]);
            assert_eq!(frames.take_unsent(), &b"\x8a\x04ping"[..], "in pieces of {size}");
            assert_eq!((frames.held_bytes(), frames.is_within_message()), (0, false));
        }
    }

    #[test]
    fn memory_of_a_message_is_counted_as_it_comes_and_given_back_behind_it() {
        const LARGE: usize = 60_000;
        let large = frame(0x81, &[b'x'; LARGE]);
        let mut frames = FrameReader::of_customer(10 * LARGE);
        frames.feed(Bytes::copy_from_slice(&large[..1]));
        assert_eq!(frames.next(), Ok(None));
        assert_eq!((frames.held_bytes(), frames.is_within_message()), (1, true), "of a header");
        frames.feed(Bytes::copy_from_slice(&large[1..LARGE]));
        assert_eq!(frames.next(), Ok(None));
        assert_eq!((frames.held_bytes(), frames.is_within_message()), (LARGE, true));
        // The next message comes in one piece with the end of this one.
        let rest = [&large[LARGE..], &frame(0x81, b"short")].concat();
        frames.feed(rest.into());
        assert_eq!(read(&mut frames), [text(&"x".repeat(LARGE)), text("short")]);
        assert_eq!((frames.held_bytes(), frames.is_within_message()), (0, false));
        // Of fragments the context has a copy besides its buffer.
        frames.feed(frame(0x01, &[b'x'; LARGE]).into());
        frames.feed(frame(0x89, b"ping").into());
        assert_eq!(read(&mut frames), [Ok(PeerMessage::Control)]);
        assert!(frames.held_bytes() >= 2 * LARGE, "{}", frames.held_bytes());
        frames.feed(frame(0x80, b"end").into());
        assert_eq!(read(&mut frames).len(), 1);
        assert_eq!((frames.held_bytes(), frames.is_within_message()), (0, false));
        assert_eq!(frames.take_unsent(), &b"\x8a\x04ping"[..]);
        frames.send(vec![b'x'; LARGE].into());
        assert_eq!(frames.take_unsent().len(), LARGE + 4);
        assert!(frames.pipe.unsent.capacity() == 0, "nothing is kept of what was sent");
    }

    #[test]
    fn what_is_against_the_protocol_or_too_large_ends_the_connection() {
        let fragments = || [frame(0x01, &[b'x'; 600]), frame(0x80, &[b'x'; 600])].concat();
        for (bytes, code) in [
            // Not masked.
            (vec![0x81, 0x02, b'h', b'i'], CloseCode::Protocol),
            // Compressed, which was not agreed on.
            (frame(0xc1, b"x"), CloseCode::Protocol),
            // A ping of more than 125 bytes, and one in two parts.
            (frame(0x89, &[0; 126]), CloseCode::Protocol),
            (frame(0x09, b"x"), CloseCode::Protocol),
            // The end of a message without its beginning.
            (frame(0x80, b"x"), CloseCode::Protocol),
            (frame(0x81, &[0xff, 0xfe]), CloseCode::Invalid),
            (frame(0x82, b"x"), CloseCode::Unsupported),
            (frame(0x81, &[b'x'; 1001]), CloseCode::Size),
            (fragments(), CloseCode::Size),
            // 8 EiB to come, of which nothing is waited for.
            ([&[0x81, 0xff, 0x7f][..], &[0xff; 7], &[0; 4]].concat(), CloseCode::Size),
        ] {
            let mut frames = FrameReader::of_customer(1000);
            frames.feed(bytes.clone().into());
            assert_eq!(read(&mut frames).last(), Some(&Err(code)), "{bytes:?}");
            frames.feed(bytes.into());
            assert_eq!(frames.next(), Ok(None), "nothing follows it");
            frames.close(code, "x");
            assert_eq!(frames.take_unsent().first(), Some(&0x88), "it can be told why");
        }
    }

    #[test]
    fn a_close_is_answered_and_nothing_follows_it() {
        let mut frames = FrameReader::of_customer(1000);
        frames.feed(frame(0x88, &1000_u16.to_be_bytes()).into());
        assert_eq!(frames.next(), Ok(Some(PeerMessage::Close)));
        assert_eq!(frames.take_unsent(), &b"\x88\x02\x03\xe8"[..]);
        frames.send(Bytes::from_static(b"late"));
        assert!(frames.take_unsent().is_empty());
        let mut frames = FrameReader::of_customer(1000);
        frames.close(CloseCode::Away, "x");
        assert_eq!(frames.take_unsent(), &b"\x88\x03\x03\xe9x"[..]);
    }
}
