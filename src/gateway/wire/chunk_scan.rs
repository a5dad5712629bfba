//! Scanner for chunked bodies.
//!
//! RFC 9112, section 7.1, ends the line of a chunk's size with CR LF and knows no blanks in it but
//! for those that it calls bad. A parser that takes a bare LF for the end of that line, inside of an
//! extension above all, sees another body, and behind it another message, than one that does not. So
//! whatever is ambiguous there ends the message. Data is skipped by its length, and never looked at.

/// The longest line of a size, and the most of trailers, in bytes. Extensions that are in use, such as
/// signatures of chunks, have a hundred.
const LINE_BYTES_MAX: usize = 4 * 1024;
/// Digits of a size: what 64 bits hold.
const DIGITS_MAX: usize = 16;

/// Position in a chunked body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    /// Within the size of a chunk.
    #[default]
    Size,
    /// Behind a size, in its extensions.
    Extension,
    /// After the CR of a size line.
    SizeEnd,
    /// Within the data of a chunk.
    Data,
    /// Before the CR that follows the data of a chunk.
    DataCr,
    /// After the CR that follows data.
    DataLf,
    /// At the beginning of a trailer line.
    Trailer,
    /// Within a trailer line.
    TrailerLine,
    /// After the CR of a trailer line.
    TrailerEnd,
    /// After the CR of the last line.
    LastEnd,
    /// After the end of the body.
    Behind,
}

/// Reads the framing of a body in chunks as it comes, in pieces of any length.
///
/// By default what two parsers could read differently is malformed: a load balancer reads customers' bodies
/// too.
#[derive(Debug, Default)]
pub(crate) struct ChunkScan {
    at: ChunkState,
    /// Size of the current chunk while it is read, then the number of bytes left of its data.
    size: u64,
    digits: usize,
    /// Bytes of this line, or of all trailers.
    line_bytes: usize,
    /// Blanks are allowed behind a size and in its extensions.
    takes_blanks: bool,
}

impl ChunkScan {
    /// A scanner for bodies from upstreams: accepts blanks where RFC 9112 asks recipients to, for servers
    /// that pad their sizes.
    pub(crate) fn lenient() -> Self {
        Self { takes_blanks: true, ..Self::default() }
    }

    /// Skips framing at the beginning of `bytes`; gives how many bytes it takes, up to data or the end
    /// of the body. `None` where it is malformed.
    pub(crate) fn skip_framing(&mut self, bytes: &[u8]) -> Option<usize> {
        for (index, byte) in bytes.iter().enumerate() {
            if matches!(self.at, ChunkState::Data | ChunkState::Behind) {
                return Some(index);
            }
            self.at = self.step(*byte)?;
        }
        Some(bytes.len())
    }

    /// Consumes data: the part of the next `available` bytes that belongs to this chunk.
    pub(crate) fn take_data(&mut self, available: usize) -> usize {
        if self.at != ChunkState::Data {
            return 0;
        }
        let taken = usize::try_from(self.size).unwrap_or(usize::MAX).min(available);
        self.size = self.size.saturating_sub(taken as u64);
        if self.size == 0 {
            self.at = ChunkState::DataCr;
        }
        taken
    }

    /// True once the body is over.
    pub(crate) fn is_over(&self) -> bool {
        self.at == ChunkState::Behind
    }

    /// True if these bytes may follow. Bytes behind the body are not checked.
    pub(crate) fn takes(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() && !self.is_over() {
            let Some(skipped) = self.skip_framing(bytes) else { return false };
            let taken = self.take_data(bytes.len().saturating_sub(skipped));
            bytes = bytes.get(skipped + taken..).unwrap_or_default();
        }
        true
    }

    /// The position after the byte; `None` if it is not allowed.
    fn step(&mut self, byte: u8) -> Option<ChunkState> {
        self.line_bytes += 1;
        if self.line_bytes > LINE_BYTES_MAX {
            return None;
        }
        Some(match (self.at, byte) {
            (ChunkState::Size, _) if byte.is_ascii_hexdigit() && self.digits < DIGITS_MAX => {
                self.size = self.size << 4 | u64::from(char::from(byte).to_digit(16)?);
                self.digits += 1;
                ChunkState::Size
            }
            (ChunkState::Size, b';') if self.digits > 0 => ChunkState::Extension,
            (ChunkState::Size, b'\r') if self.digits > 0 => ChunkState::SizeEnd,
            (ChunkState::Extension, b'\r') => ChunkState::SizeEnd,
            (ChunkState::Extension, 0x21..=0x7e) => ChunkState::Extension,
            (ChunkState::Size, b' ' | b'\t') if self.takes_blanks && self.digits > 0 => {
                ChunkState::Extension
            }
            (ChunkState::Extension, b' ' | b'\t' | 0x80..) if self.takes_blanks => {
                ChunkState::Extension
            }
            (ChunkState::SizeEnd, b'\n') => {
                (self.digits, self.line_bytes) = (0, 0);
                if self.size == 0 { ChunkState::Trailer } else { ChunkState::Data }
            }
            (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
            (ChunkState::DataLf, b'\n') => {
                self.line_bytes = 0;
                ChunkState::Size
            }
            (ChunkState::Trailer, b'\r') => ChunkState::LastEnd,
            (ChunkState::LastEnd, b'\n') => ChunkState::Behind,
            (ChunkState::TrailerLine, b'\r') => ChunkState::TrailerEnd,
            (ChunkState::TrailerEnd, b'\n') => ChunkState::Trailer,
            // A line that begins with a blank goes on with the one before, to some.
            (ChunkState::Trailer, 0x21..=0x7e) => ChunkState::TrailerLine,
            (ChunkState::TrailerLine, b'\t' | b' '..=0x7e | 0x80..) => ChunkState::TrailerLine,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if the body is accepted as one piece, and byte by byte.
    fn takes(body: &[u8]) -> bool {
        let whole = ChunkScan::default().takes(body);
        let mut scan = ChunkScan::default();
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

    #[test]
    fn blanks_are_taken_where_nobody_else_reads() {
        for body in [&b"5 \r\nabcde\r\n0\r\n\r\n"[..], b"5\t; a=\"b \xff\"\r\nabcde\r\n0  \r\n\r\n"]
        {
            let mut scan = ChunkScan::lenient();
            assert!(scan.takes(body) && scan.is_over(), "{}", body.escape_ascii());
        }
        for body in [&b" 5\r\n"[..], b"\r\n", b"5\n", b"5 \n", b"5; a\nb\r\n"] {
            assert!(!ChunkScan::lenient().takes(body), "{}", body.escape_ascii());
        }
    }
}
