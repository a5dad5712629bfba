//! How a body in chunks is framed on the wire, stricter than the parser behind it.
//!
//! RFC 9112, section 7.1, ends the line of a chunk's size with CR LF and knows no blanks in it but
//! for those that it calls bad. A parser that takes a bare LF for the end of that line, inside of an
//! extension above all, sees another body, and behind it another request, than one that does not. So
//! whatever is ambiguous there ends the request. Data is skipped by its length, and never looked at.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::GatewayError;
use crate::gateway::listen::framing::{self, BodyIs};

/// The longest line of a size, and the most of trailers. Extensions that are in use, such as
/// signatures of chunks, have a hundred bytes.
const LINE_BYTES_MAX: usize = 4 * 1024;
/// Digits of a size: what 64 bits hold.
const DIGITS_MAX: usize = 16;

/// The body that is being read from a connection.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    is_checked: AtomicBool,
    scan: Mutex<Scan>,
}

impl Chunks {
    /// What comes is no body in chunks.
    pub(crate) fn none(&self) {
        self.is_checked.store(false, Ordering::Relaxed);
    }

    /// A head was read that says what its body is; `begun` came with it.
    ///
    /// # Errors
    /// `BadFraming` when what came with it is wrong already.
    pub(crate) fn begin(&self, body: BodyIs, begun: &[u8]) -> Result<(), GatewayError> {
        self.is_checked.store(body == BodyIs::InChunks, Ordering::Relaxed);
        if body != BodyIs::InChunks {
            return Ok(());
        }
        *self.scan.lock() = Scan::default();
        if self.takes(begun) { Ok(()) } else { Err(framing::bad_chunks()) }
    }

    /// Whether a body in chunks is being read.
    pub(crate) fn are_checked(&self) -> bool {
        self.is_checked.load(Ordering::Relaxed)
    }

    /// Whether these bytes may follow.
    pub(crate) fn takes(&self, bytes: &[u8]) -> bool {
        !self.is_checked.load(Ordering::Relaxed) || self.scan.lock().takes(bytes)
    }
}

/// Where in the body the next byte stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// In the size of a chunk.
    #[default]
    Size,
    /// Behind a size, in its extensions.
    Extension,
    /// Behind the CR of a size's line.
    SizeEnd,
    /// In the data of a chunk.
    Data,
    /// Behind the CR that follows the data of a chunk.
    DataCr,
    /// Behind the CR behind data.
    DataLf,
    /// At the beginning of a line of trailers.
    Trailer,
    /// In such a line.
    TrailerLine,
    /// Behind the CR of such a line.
    TrailerEnd,
    /// Behind the CR of the last line.
    LastEnd,
    /// Behind the end of the body.
    Behind,
}

#[derive(Debug, Default)]
struct Scan {
    at: At,
    /// Of the size, and then bytes that are left of the data.
    size: u64,
    digits: usize,
    /// Bytes of this line, or of all trailers.
    line_bytes: usize,
}

impl Scan {
    fn takes(&mut self, mut bytes: &[u8]) -> bool {
        while let [byte, rest @ ..] = bytes {
            if self.at == At::Behind {
                return true;
            }
            if self.at == At::Data {
                let skipped = usize::try_from(self.size).unwrap_or(usize::MAX).min(bytes.len());
                self.size -= u64::try_from(skipped).unwrap_or(u64::MAX).min(self.size);
                bytes = bytes.get(skipped..).unwrap_or_default();
                if self.size == 0 {
                    self.at = At::DataCr;
                }
                continue;
            }
            let Some(next) = self.step(*byte) else { return false };
            self.at = next;
            bytes = rest;
        }
        true
    }

    /// Where the byte leads; `None` where it may not stand.
    fn step(&mut self, byte: u8) -> Option<At> {
        self.line_bytes += 1;
        if self.line_bytes > LINE_BYTES_MAX {
            return None;
        }
        Some(match (self.at, byte) {
            (At::Size, _) if byte.is_ascii_hexdigit() && self.digits < DIGITS_MAX => {
                self.size = self.size << 4 | u64::from(char::from(byte).to_digit(16)?);
                self.digits += 1;
                At::Size
            }
            (At::Size, b';') if self.digits > 0 => At::Extension,
            (At::Size, b'\r') if self.digits > 0 => At::SizeEnd,
            (At::Extension, b'\r') => At::SizeEnd,
            (At::Extension, 0x21..=0x7e) => At::Extension,
            (At::SizeEnd, b'\n') => {
                (self.digits, self.line_bytes) = (0, 0);
                if self.size == 0 { At::Trailer } else { At::Data }
            }
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => {
                self.line_bytes = 0;
                At::Size
            }
            (At::Trailer, b'\r') => At::LastEnd,
            (At::LastEnd, b'\n') => At::Behind,
            (At::TrailerLine, b'\r') => At::TrailerEnd,
            (At::TrailerEnd, b'\n') => At::Trailer,
            // A line that begins with a blank goes on with the one before, to some.
            (At::Trailer, 0x21..=0x7e) => At::TrailerLine,
            (At::TrailerLine, b'\t' | b' '..=0x7e | 0x80..) => At::TrailerLine,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it is taken as one piece, and as one byte after the other.
    fn takes(body: &[u8]) -> bool {
        let whole = Scan::default().takes(body);
        let mut scan = Scan::default();
        let bytewise = body.iter().all(|byte| scan.takes(&[*byte]));
        assert_eq!(whole, bytewise, "{}", body.escape_ascii());
        whole
    }

    #[test]
    fn ordinary_bodies_are_taken() {
        let bodies: [&[u8]; 8] = [
            b"0\r\n\r\n",
            b"4\r\nbody\r\n0\r\n\r\n",
            b"004\r\n\n\r\n\n\r\n00\r\n\r\n",
            b"A;a=b;c=\"d\"\r\n0123456789\r\n0;last\r\n\r\n",
            b"4\r\nbody\r\n0\r\nX-Trailer: some value\r\nY:\r\n\r\n",
            b"4\r\nbody\r\n0\r\n\r\nGET / HTTP/1.1\nwhatever\n",
            b"4\r\nbo",
            b"ffffffffffffffff\r\nmuch",
        ];
        for body in bodies {
            assert!(takes(body), "{}", body.escape_ascii());
        }
    }

    #[test]
    fn what_two_parsers_may_read_differently_is_refused() {
        let long = [b"4;".as_slice(), &[b'x'; LINE_BYTES_MAX], b"\r\n"].concat();
        let bodies: [&[u8]; 24] = [
            b"5;a\nb\r\n",
            b"5;a\n",
            b"5\n",
            b"5 \r\n",
            b"5\t\r\n",
            b" 5\r\n",
            b"5 ;a\r\n",
            b"5; a\r\n",
            b"5;a b\r\n",
            b"5;a=\"b c\"\r\n",
            b"5;a\rb\r\n",
            b"5;\xff\r\n",
            b"5;\0\r\n",
            b"+5\r\n",
            b"0x5\r\n",
            b"-1\r\n",
            b"\r\n",
            b";a\r\n",
            b"00000000000000004\r\nbody\r\n",
            b"4\r\nbody0\r\n\r\n",
            b"4\r\nbody\n0\r\n\r\n",
            b"0\r\nX: y\nZ: y\r\n\r\n",
            b"0\r\n folded\r\n\r\n",
            &long,
        ];
        for body in bodies {
            assert!(!takes(body), "{}", body.escape_ascii());
        }
    }
}
