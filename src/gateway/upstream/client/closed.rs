//! Delivery of a request whose connection ends without an answer: docs/adr/0065-connections-to-upstreams.md
//! has the measurements.

use std::io;

/// The end of the upstream's side of a connection before the first byte of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlyClose {
    /// Closed with TCP's FIN, which acknowledges everything that arrived before it.
    InOrder,
    /// Closed with a reset, which acknowledges nothing.
    Reset,
}

impl EarlyClose {
    /// The end that an error of reading reports.
    pub(super) fn from_error(error: &io::Error) -> Option<Self> {
        match error.kind() {
            // TCP's end without TLS's own.
            io::ErrorKind::UnexpectedEof => Some(Self::InOrder),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected => Some(Self::Reset),
            _ => None,
        }
    }

    /// True if the upstream cannot have read a complete request of `request_bytes`, given the bytes `acked`
    /// by its machine.
    pub(super) fn leaves_unread(self, acked: u64, request_bytes: u64) -> bool {
        match self {
            Self::InOrder => acked < request_bytes,
            Self::Reset => acked == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_tells_what_can_have_been_read() {
        for (closed, acked, is_unread) in [
            (EarlyClose::InOrder, 0, true),
            (EarlyClose::InOrder, 99, true),
            (EarlyClose::InOrder, 100, false),
            // Over TLS more bytes are sent than the request has.
            (EarlyClose::InOrder, 140, false),
            (EarlyClose::Reset, 0, true),
            (EarlyClose::Reset, 1, false),
            (EarlyClose::Reset, 100, false),
        ] {
            assert_eq!(closed.leaves_unread(acked, 100), is_unread, "{closed:?} {acked}");
        }
        let by = |kind: io::ErrorKind| EarlyClose::from_error(&kind.into());
        assert_eq!(by(io::ErrorKind::UnexpectedEof), Some(EarlyClose::InOrder));
        assert_eq!(by(io::ErrorKind::ConnectionReset), Some(EarlyClose::Reset));
        assert_eq!(by(io::ErrorKind::BrokenPipe), Some(EarlyClose::Reset));
        assert_eq!(by(io::ErrorKind::TimedOut), None, "nothing was heard of the other side");
    }
}
