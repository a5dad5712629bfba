//! The body of a request, as it comes over a connection.

use std::pin::pin;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use pingora::protocols::Stream;
use pingora::{Error, ErrorType, OrErr as _, Result};
use tokio::io::AsyncReadExt as _;
use tollgate_process_memory::Buffer;

use crate::error::GatewayError;
use crate::gateway::listen::session_parts::within;
use crate::gateway::wire::chunk_scan::ChunkScan;
use crate::gateway::wire::framing::{self, BodyIs};

/// Maximum number of bytes per read, and per returned piece of a body.
const PIECE_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of bytes per read of a gathered body: so many can be there before they are counted, once for
/// each thread that reads.
const GATHERED_READ_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of bytes reserved for a declared length; untouched pages take no memory.
const GATHERED_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of one read after an upgrade, since messages of WebSockets are mostly short.
const SWITCHED_BYTES: usize = 8 * 1024;

/// Unread part of a request body.
pub(super) struct UnreadBody {
    left: BodyLeft,
    /// Received bytes of the body, or after it, that were not returned yet.
    come: BytesMut,
    /// The beginning of a body that is returned in one piece.
    gathered: Option<Buffer>,
    /// Bytes of the body that were returned or gathered.
    bytes_read: usize,
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
        Ok(Self { left, come, gathered: None, bytes_read: 0 })
    }

    /// True once the whole body was returned.
    pub(super) fn is_done(&self) -> bool {
        match &self.left {
            BodyLeft::Length(bytes) => *bytes == 0,
            BodyLeft::Chunks(scan) => scan.is_over(),
            BodyLeft::Switched | BodyLeft::Broken => false,
        }
    }

    /// Number of bytes of the body that were returned or gathered.
    pub(super) fn bytes_read(&self) -> usize {
        self.bytes_read
    }

    /// Returns the rest of a long body of a declared length in one piece, and an empty piece for each read before
    /// it. Where nobody needs its beginning, nothing is copied.
    pub(super) fn gather(&mut self) {
        if let BodyLeft::Length(left) = self.left
            && (PIECE_BYTES_MAX as u64 + 1..=GATHERED_BYTES_MAX).contains(&left)
            && self.gathered.is_none()
        {
            self.gathered = Some(Buffer::with_capacity(usize::try_from(left).unwrap_or(0)));
        }
    }

    /// Returns what comes in pieces. What was gathered is thrown away.
    pub(super) fn stop_gathering(&mut self) {
        self.gathered = None;
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
        let is_gathered = self.gathered.is_some();
        let next = match self.left {
            BodyLeft::Length(0) => Ok(None),
            BodyLeft::Length(left) if self.gathered.is_some() => {
                self.next_gathered(left, stream, wait).await.map(Some)
            }
            BodyLeft::Length(left) => self.next_of(left, stream, wait).await.map(Some),
            BodyLeft::Chunks(_) => self.next_chunks(stream, wait).await,
            BodyLeft::Switched => self.next_switched(stream, wait).await,
            BodyLeft::Broken => malformed(),
        };
        if let (Ok(Some(piece)), false) = (&next, is_gathered) {
            self.bytes_read += piece.len();
        }
        if self.come.is_empty() && self.is_done() {
            // The answer may take minutes, for which it would keep the memory of the last piece.
            self.come = BytesMut::new();
        }
        next
    }

    /// Reads on in a gathered body with `left` bytes to come: the whole, once it is, and an empty piece before.
    async fn next_gathered(
        &mut self,
        left: u64,
        stream: &mut Stream,
        wait: Option<Duration>,
    ) -> Result<Bytes> {
        let Self { come, gathered, .. } = self;
        let Some(gathered) = gathered else { return Ok(Bytes::new()) };
        let bytes = usize::try_from(left).unwrap_or(usize::MAX);
        let count = if come.is_empty() {
            let reading = async {
                let mut room = gathered.room(bytes.min(GATHERED_READ_BYTES_MAX));
                let read = stream.read_buf(&mut room).await;
                read.or_err(ErrorType::ReadError, "reading a body")
            };
            within(wait, ErrorType::ReadTimedout, "reading a body", pin!(reading)).await?
        } else {
            let count = come.len().min(bytes);
            gathered.extend_from_slice(come.get(..count).unwrap_or_default());
            come.advance(count);
            count
        };
        if count == 0 {
            return Error::e_explain(ErrorType::ConnectionClosed, "in the middle of a body");
        }
        self.bytes_read += count;
        let left = left.saturating_sub(count as u64);
        self.left = BodyLeft::Length(left);
        let whole = if left == 0 { self.gathered.take() } else { None };
        Ok(whole.map_or_else(Bytes::new, Buffer::freeze))
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
