//! The body of a request, as it comes over a connection.

use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pingora::protocols::Stream;
use pingora::{Error, ErrorType, OrErr as _, Result};
use tokio::io::AsyncReadExt as _;

use crate::error::GatewayError;
use crate::gateway::listen::session_parts::within;
use crate::gateway::wire::chunk_scan::ChunkScan;
use crate::gateway::wire::framing::{self, BodyIs};

/// Maximum number of bytes per read, and per returned piece of a body.
const PIECE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of one read after an upgrade, since messages of WebSockets are mostly short.
const SWITCHED_BYTES: usize = 8 * 1024;

/// Unread part of a request body.
pub(super) struct UnreadBody {
    left: BodyLeft,
    /// Received bytes of the body, or after it, that were not returned yet.
    come: BytesMut,
}

/// Framing of the rest of a body.
enum BodyLeft {
    /// Number of bytes to come.
    Length(u64),
    /// Chunks are to come, up to the last one.
    Chunks(ChunkScan),
    /// Whatever comes until the connection is closed, in another protocol.
    Switched,
    /// Malformed chunks: nothing more can be read.
    Broken,
}

impl UnreadBody {
    /// A body whose first bytes, `come`, arrived with its head.
    ///
    /// # Errors
    /// `BadFraming` when that is framed in a wrong way already.
    pub(super) fn new(body: BodyIs, come: BytesMut) -> Result<Self, GatewayError> {
        let left = match body {
            BodyIs::OfLength(bytes) => BodyLeft::Length(bytes),
            BodyIs::InChunks if !ChunkScan::default().takes(&come) => {
                return Err(framing::bad_chunks());
            }
            BodyIs::InChunks => BodyLeft::Chunks(ChunkScan::default()),
        };
        Ok(Self { left, come })
    }

    /// True once the whole body was returned.
    pub(super) fn is_done(&self) -> bool {
        match &self.left {
            BodyLeft::Length(bytes) => *bytes == 0,
            BodyLeft::Chunks(scan) => scan.is_over(),
            BodyLeft::Switched | BodyLeft::Broken => false,
        }
    }

    /// True if bytes of another request have arrived behind the body.
    pub(super) fn is_followed(&self) -> bool {
        self.is_done() && !self.come.is_empty()
    }

    /// Switches to another protocol: later bytes are no HTTP body.
    pub(super) fn switch_protocols(&mut self) {
        self.left = BodyLeft::Switched;
    }

    /// The next piece; `None` at the end. Dropped before it is ready, it can be asked for again. Each time
    /// that nothing comes may be as long as `wait`.
    ///
    /// # Errors
    /// When the connection fails or ends before the body does, nothing comes in time, or chunks are
    /// malformed.
    pub(super) async fn next(
        &mut self,
        stream: &mut Stream,
        wait: Option<Duration>,
    ) -> Result<Option<Bytes>> {
        match self.left {
            BodyLeft::Length(0) => Ok(None),
            BodyLeft::Length(left) => self.next_of(left, stream, wait).await.map(Some),
            BodyLeft::Chunks(_) => self.next_chunks(stream, wait).await,
            BodyLeft::Switched => self.next_switched(stream, wait).await,
            BodyLeft::Broken => malformed(),
        }
    }

    /// The next piece of a body with `left` bytes to come: all of them if they are not too many, so that
    /// nobody has to put them together, else what comes.
    async fn next_of(
        &mut self,
        left: u64,
        stream: &mut Stream,
        wait: Option<Duration>,
    ) -> Result<Bytes> {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let at_least = if left > PIECE_BYTES_MAX { 1 } else { left };
        while self.come.len() < at_least {
            // With less room a read goes through a buffer of the connection's, of as many bytes.
            self.come.reserve(left.saturating_sub(self.come.len()).min(PIECE_BYTES_MAX));
            self.read_in_body(stream, wait).await?;
        }
        let piece = self.come.split_to(left.min(self.come.len()));
        self.left = BodyLeft::Length(left.saturating_sub(piece.len()) as u64);
        Ok(piece.freeze())
    }

    /// Data of all complete chunks received so far.
    async fn next_chunks(
        &mut self,
        stream: &mut Stream,
        wait: Option<Duration>,
    ) -> Result<Option<Bytes>> {
        let mut data = BytesMut::new();
        loop {
            let BodyLeft::Chunks(scan) = &mut self.left else { return Ok(None) };
            while !self.come.is_empty() && !scan.is_over() {
                let Some(framing) = scan.skip_framing(&self.come) else {
                    self.left = BodyLeft::Broken;
                    return malformed();
                };
                let _skipped = self.come.split_to(framing);
                let taken = scan.take_data(self.come.len());
                let chunk = self.come.split_to(taken);
                if data.is_empty() {
                    data = chunk;
                } else {
                    data.extend_from_slice(&chunk);
                }
            }
            if !data.is_empty() {
                return Ok(Some(data.freeze()));
            }
            if scan.is_over() {
                return Ok(None);
            }
            self.come.reserve(PIECE_BYTES_MAX);
            self.read_in_body(stream, wait).await?;
            // What was read can be thousands of chunks: it is others' turn before more is.
            tokio::task::yield_now().await;
        }
    }

    async fn next_switched(
        &mut self,
        stream: &mut Stream,
        wait: Option<Duration>,
    ) -> Result<Option<Bytes>> {
        if self.come.is_empty() {
            self.come.reserve(SWITCHED_BYTES);
            self.read_more(stream, wait).await?;
        }
        Ok(Some(self.come.split().freeze()).filter(|bytes| !bytes.is_empty()))
    }

    async fn read_in_body(&mut self, stream: &mut Stream, wait: Option<Duration>) -> Result<()> {
        match self.read_more(stream, wait).await? {
            0 => Error::e_explain(ErrorType::ConnectionClosed, "in the middle of a body"),
            _ => Ok(()),
        }
    }

    /// Reads available bytes and returns their number.
    async fn read_more(&mut self, stream: &mut Stream, wait: Option<Duration>) -> Result<usize> {
        let reading = async {
            let read = stream.read_buf(&mut self.come).await;
            read.or_err(ErrorType::ReadError, "reading a body")
        };
        within(wait, ErrorType::ReadTimedout, "reading a body", pin!(reading)).await
    }
}

fn malformed<T>() -> Result<T> {
    let malformed = std::io::Error::from(std::io::ErrorKind::InvalidData);
    Error::e_because(ErrorType::ReadError, "reading chunks", malformed)
}
