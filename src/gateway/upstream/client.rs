//! One call to an upstream over HTTP/1.1, step by step: over connections of Pingora's, without the loop
//! that couples them to a customer's, and without its client. So an answer can be read to its end
//! whoever is left to listen, how much of a request was sent is known, and a request costs one write.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use pingora::protocols::Stream;
use pingora::{Error, ErrorType, OrErr, Result};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tollgate_outbound::{CodingError, ContentCoding, Decoder};

use self::answer::{Keep, ReadHead, UnreadAnswer};
use self::closed::EarlyClose;
pub(crate) use self::pool::UpstreamPool;
use self::pool::{UpstreamConnection, acked};
use crate::balance::QuotaReport;
use crate::config::snapshot::Upstream;
use crate::gateway::wire::head::AnswerHead;
use crate::gateway::wire::shared_read::{self, SHARED_READ_BYTES_MAX};
use crate::protocols::splice::EditedBody;

mod answer;
mod closed;
mod pool;

/// Maximum size of the part of a request body that is copied behind its head, in bytes: one more write costs
/// more than copying it.
const JOINED_BYTES_MAX: usize = 16 * 1024;
/// Time for the reason of an upstream that stops reading a request.
const EARLY_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Informational answers before the real one. Nobody sends more than a few.
const INFORMATIONAL_MAX: u32 = 16;
/// Size of a read into a buffer of the call's own, in bytes, for an answer that comes faster than the shared
/// buffer can take it.
const READ_BYTES_MAX: usize = 64 * 1024;
/// Capacity of a buffer for what was read, in bytes: several events share one, so that not each of them costs
/// an allocation, and an open stream has no more.
const KEPT_BYTES: usize = 2 * 1024;
/// Maximum size of the part of a body that is inspected before it is relayed. Upstreams that keep a
/// connection alive with blank lines while they think stay below it.
const LOOKED_AT_BYTES_MAX: usize = 64 * 1024;

/// Progress of writing a request to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteProgress {
    /// Nothing, or only a part: an upstream cannot have begun to process an incomplete request.
    NotWhole,
    /// The whole request was sent: the upstream may be processing it.
    Whole,
}

/// A call in progress.
pub(crate) struct UpstreamCall {
    connection: UpstreamConnection,
    upstream: Arc<Upstream>,
    /// Bytes that the upstream's machine will have acknowledged when everything before this request has
    /// arrived, on a reused connection: more means that some of this request has.
    acked_before: Option<u64>,
    sent: WriteProgress,
    /// The length of the request, before anything encrypts it.
    request_bytes: u64,
    /// Longest silence.
    read_timeout: Option<Duration>,
    /// Bytes that were read ahead.
    read: BytesMut,
    /// The answer comes faster than the shared buffer can take it.
    is_fast: bool,
    /// The last read emptied the socket: an immediate second one would find nothing.
    is_drained: bool,
    /// Bytes of `read` that were searched for the end of the head.
    scanned: usize,
    /// Number of informational (1xx) responses received.
    informational: u32,
    /// Response head that arrived before the request was sent completely.
    early: Option<ReadHead>,
    /// The way the connection ended, if it did before the first byte of an answer.
    closed: Option<EarlyClose>,
    /// Framing of the rest of the body.
    body: UnreadAnswer,
    /// Decoder of a body that is compressed although no compression was requested.
    decoder: Option<Box<Decoder>>,
    keep: Keep,
    /// The quota that the head reports.
    quota: Option<QuotaReport>,
    /// An error of reading ahead, which the next read returns.
    failed: Option<Box<Error>>,
    /// Beginning of the body that was inspected and not returned yet.
    looked_at: Bytes,
}

impl UpstreamCall {
    fn new(connection: UpstreamConnection, upstream: Arc<Upstream>) -> Self {
        let acked = || connection.written.or_else(|| acked(&connection.stream));
        let acked_before = connection.is_reused.then(acked).flatten();
        Self {
            connection,
            upstream,
            acked_before,
            sent: WriteProgress::NotWhole,
            request_bytes: 0,
            read_timeout: None,
            read: BytesMut::new(),
            is_fast: false,
            is_drained: false,
            scanned: 0,
            informational: 0,
            early: None,
            closed: None,
            body: UnreadAnswer::NONE,
            decoder: None,
            keep: Keep::No,
            quota: None,
            failed: None,
            looked_at: Bytes::new(),
        }
    }

    /// The connection, if it can serve another request, and how long it is kept for one: as long as the
    /// operator says, or less where the upstream does.
    fn into_kept(self: Box<Self>) -> Option<(UpstreamConnection, Duration)> {
        let is_in_order =
            self.sent == WriteProgress::Whole && self.is_done() && self.failed.is_none();
        let idle = self.upstream.timeouts.idle;
        match self.keep {
            // Bytes behind an answer belong to nothing that was asked.
            Keep::For(time) if is_in_order && self.read.is_empty() => {
                Some((self.connection, time.map_or(idle, |time| pool::kept_for(time).min(idle))))
            }
            Keep::For(_) | Keep::No => None,
        }
    }

    /// Bytes of a body that are written together with the head.
    pub(crate) fn joined_bytes(body: &EditedBody) -> usize {
        body.len().min(JOINED_BYTES_MAX)
    }

    /// Sends the request, whose `head` ends with its empty line. An upstream that answers before it has
    /// all of it is listened to.
    ///
    /// # Errors
    /// The connection's, and a write that took too long.
    pub(crate) async fn send(&mut self, head: BytesMut, body: &EditedBody) -> Result<()> {
        if let Err(error) = self.write(head, body).await {
            // An upstream that refuses a request while it is being sent closes its side, and what it
            // says stands in the connection.
            self.read_timeout = Some(EARLY_ANSWER_TIMEOUT);
            let Ok(early) = self.read_head().await else { return Err(error.into_up()) };
            self.early = Some(early);
        }
        self.read_timeout = Some(self.upstream.timeouts.read);
        Ok(())
    }

    async fn write(&mut self, mut head: BytesMut, body: &EditedBody) -> Result<()> {
        let (limit, length) = (self.upstream.timeouts.write, head.len() + body.len());
        self.request_bytes = length as u64;
        let mut room = Self::joined_bytes(body);
        for piece in body.pieces() {
            // What has room there goes with the head.
            let (joined, rest) = piece.split_at(room.min(piece.len()));
            head.extend_from_slice(joined);
            room -= joined.len();
            if rest.is_empty() {
                continue;
            }
            self.write_piece(&std::mem::take(&mut head)).await?;
            self.write_piece(rest).await?;
        }
        self.write_piece(&head).await?;
        if self.early.is_some() {
            return Ok(());
        }
        let UpstreamConnection { stream, timer, written, .. } = &mut self.connection;
        let flushed = timer.within(limit, pin!(stream.flush())).await.ok_or_else(stalled)?;
        flushed.or_err(ErrorType::WriteError, "while writing a request")?;
        *written = written.map(|before| before + length as u64);
        self.sent = WriteProgress::Whole;
        Ok(())
    }

    /// Sends a piece of the request. While the upstream does not accept it, its response is read too: it may
    /// have answered early and wait for that to be read.
    async fn write_piece(&mut self, mut piece: &[u8]) -> Result<()> {
        let limit = self.upstream.timeouts.write;
        let mut is_silent = false;
        while !piece.is_empty() && self.early.is_none() {
            let Self { connection, upstream, read, scanned, informational, early, .. } = self;
            let UpstreamConnection { stream, timer, .. } = connection;
            let written = pin!(poll_fn(|context| {
                loop {
                    match Pin::new(&mut *stream).poll_write(context, piece) {
                        Poll::Ready(Ok(0)) => {
                            return Poll::Ready(Err(write_failed(io::ErrorKind::WriteZero.into())));
                        }
                        Poll::Ready(written) => return Poll::Ready(written.map_err(write_failed)),
                        Poll::Pending if is_silent => return Poll::Pending,
                        Poll::Pending => {}
                    }
                    match ready!(poll_read(stream, read, context)) {
                        Ok(count) if count > 0 => {
                            *early = take_head(read, scanned, informational, upstream)?;
                        }
                        // The next write will tell.
                        _ => is_silent = true,
                    }
                    if early.is_some() {
                        return Poll::Ready(Ok(0));
                    }
                }
            }));
            let written = timer.within(limit, written).await.ok_or_else(stalled)??;
            piece = piece.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// Waits for the head of the answer. It may be waited for again after a time-out.
    ///
    /// # Errors
    /// The connection's, a head that is none, and a silence that took too long.
    pub(crate) async fn head(&mut self) -> Result<AnswerHead> {
        let head = match self.early.take() {
            Some(early) => early,
            None => self.read_head().await.map_err(|error| error.into_up())?,
        };
        let ReadHead { mut head, body, keep, quota } = head;
        (self.body, self.keep, self.quota) = (body, keep, quota);
        self.decode(&mut head);
        Ok(head)
    }

    /// Decodes a compressed body, and removes the encoding and the length from its head, since the client
    /// gets neither.
    fn decode(&mut self, head: &mut AnswerHead) {
        if !head.headers.contains(&CONTENT_ENCODING) {
            return;
        }
        match ContentCoding::from_fields(head.headers.get_all(&CONTENT_ENCODING)) {
            ContentCoding::Unknown => return,
            ContentCoding::Known(decoder) if !self.body.is_over() => {
                self.decoder = Some(decoder);
                head.headers.remove(&CONTENT_LENGTH);
            }
            ContentCoding::Known(_) | ContentCoding::Identity => {}
        }
        head.headers.remove(&CONTENT_ENCODING);
    }

    /// The operator's quota that the head reports.
    pub(crate) fn quota(&self) -> Option<&QuotaReport> {
        self.quota.as_ref()
    }

    async fn read_head(&mut self) -> Result<ReadHead> {
        loop {
            let Self { read, scanned, informational, upstream, .. } = self;
            if let Some(head) = take_head(read, scanned, informational, upstream)? {
                return Ok(head);
            }
            if self.read_more().await? == 0 {
                self.closed = self.read.is_empty().then_some(EarlyClose::InOrder);
                return Err(Error::explain(ErrorType::ConnectionClosed, "before an answer"));
            }
        }
    }

    /// Reads available bytes; 0 at the end of the connection.
    async fn read_more(&mut self) -> Result<usize> {
        let Self { connection, read, is_fast, .. } = self;
        let UpstreamConnection { stream, timer, .. } = connection;
        let reading = poll_fn(|context| {
            if !*is_fast {
                return poll_read(stream, read, context);
            }
            read.reserve(READ_BYTES_MAX);
            pin!(stream.read_buf(read)).poll(context)
        });
        let read = match self.read_timeout {
            Some(limit) => timer.within(limit, pin!(reading)).await.ok_or_else(silent)?,
            None => reading.await,
        };
        let count = match read {
            Ok(count) => count,
            Err(error) => {
                self.closed = EarlyClose::from_error(&error).filter(|_| self.read.is_empty());
                let context = "while reading an answer";
                return Err(Error::because(ErrorType::ReadError, context, error));
            }
        };
        let is_full = match self.is_fast {
            true => self.read.len() == self.read.capacity(),
            false => count == SHARED_READ_BYTES_MAX,
        };
        // More is there than had room; or so little that the shared buffer has room for it again.
        self.is_fast = is_full || self.is_fast && count >= SHARED_READ_BYTES_MAX;
        // What is encrypted comes in records, and a read gives one of them.
        self.is_drained = !is_full && !self.upstream.destination.is_encrypted();
        Ok(count)
    }

    /// The next piece of the answer's body; `None` at its end.
    ///
    /// # Errors
    /// A body that breaks off, or is silent for too long.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>> {
        if !self.looked_at.is_empty() {
            return Ok(Some(std::mem::take(&mut self.looked_at)));
        }
        self.unseen_chunk().await
    }

    /// Reads the next piece after the inspected ones.
    async fn unseen_chunk(&mut self) -> Result<Option<Bytes>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.read_body().await.map_err(|error| error.into_up())
    }

    async fn read_body(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(decoder) = &mut self.decoder
                && let Some(piece) = decoder.next_piece().map_err(undecodable)?
            {
                return Ok(Some(piece));
            }
            match (self.read_coded().await?, &mut self.decoder) {
                (piece, None) => return Ok(piece),
                (Some(coded), Some(decoder)) => decoder.feed(coded),
                (None, Some(decoder)) => {
                    return decoder.finish().map(|()| None).map_err(undecodable);
                }
            }
        }
    }

    /// The next piece of the body, as received.
    async fn read_coded(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(piece) = self.body.take(&mut self.read)? {
                return Ok(Some(piece));
            }
            if self.body.is_over() {
                return Ok(None);
            }
            if self.read_more().await? == 0 {
                self.keep = Keep::No;
                self.body.end()?;
            }
        }
    }

    /// The beginning of the answer's body, which [`Self::chunk`] gives again: its first piece, or as
    /// many as it takes until `is_enough`, which hears whether nothing comes behind them. Of a document that
    /// has to be decoded it is all, if that is little: then one that cannot be is known before any of it is
    /// sent. It may be dropped at any time, and be looked at again after a time-out.
    ///
    /// # Errors
    /// A body that breaks off, or is silent for too long.
    pub(crate) async fn look(
        &mut self,
        is_document: bool,
        mut is_enough: impl FnMut(&[u8], bool) -> bool,
    ) -> Result<Bytes> {
        let wants_all = is_document && self.decoder.is_some();
        while self.looked_at.is_empty()
            || (wants_all || !is_enough(&self.looked_at, self.has_shown_all()))
                && self.looked_at.len() < LOOKED_AT_BYTES_MAX
        {
            match self.unseen_chunk().await? {
                // One piece is enough as a rule, and stays where it is.
                Some(piece) if self.looked_at.is_empty() => self.looked_at = piece,
                Some(piece) => {
                    let mut joined = BytesMut::from(std::mem::take(&mut self.looked_at));
                    joined.extend_from_slice(&piece);
                    self.looked_at = joined.freeze();
                }
                None => break,
            }
        }
        Ok(self.looked_at.clone())
    }

    /// Reads the body without waiting: a piece, or `Some(None)` at its end. The next [`Self::chunk`] returns
    /// an error.
    pub(crate) fn chunk_now(&mut self) -> Option<Option<Bytes>> {
        if self.has_to_wait() {
            return None;
        }
        match self.chunk().now_or_never()? {
            Ok(chunk) => Some(chunk),
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }

    /// True if certainly nothing of the body has arrived.
    fn has_to_wait(&self) -> bool {
        let has_decoded = self.decoder.as_ref().is_some_and(|decoder| !decoder.is_drained());
        let has_nothing = self.looked_at.is_empty()
            && self.read.is_empty()
            && self.failed.is_none()
            && !has_decoded;
        has_nothing && self.is_drained && !self.body.is_over()
    }

    /// Makes the next [`Self::chunk`] return this error, which [`Self::look`] has met.
    pub(crate) fn fail_next(&mut self, error: Box<Error>) {
        self.failed = Some(error);
    }

    /// True if [`Self::look`] has shown the whole body.
    pub(crate) fn has_shown_all(&self) -> bool {
        self.body.is_over() && self.decoder.as_ref().is_none_or(|decoder| decoder.is_whole())
    }

    /// True once the whole answer was read.
    pub(crate) fn is_done(&self) -> bool {
        self.looked_at.is_empty() && self.has_shown_all()
    }

    /// Removes the limit on pauses.
    pub(crate) fn wait_without_limit(&mut self) {
        self.read_timeout = None;
    }

    /// Upstream that was called.
    pub(crate) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// True if the connection served a request before.
    pub(crate) fn is_reused(&self) -> bool {
        self.connection.is_reused
    }

    /// True if the upstream cannot have begun with the request, after an error in the place of an answer:
    /// it has not received all of it. A kept connection may have been closed by the upstream before the
    /// request came; the bytes that TCP acknowledged decide (docs/adr/0065-connections-to-upstreams.md).
    pub(crate) fn has_not_begun(&self) -> bool {
        if self.sent == WriteProgress::NotWhole {
            return true;
        }
        let (Some(before), Some(closed)) = (self.acked_before, self.closed) else { return false };
        let Some(acked) = acked(&self.connection.stream) else { return false };
        closed.leaves_unread(acked.saturating_sub(before), self.request_bytes)
    }
}

/// The head of the answer, if it was read; what is only informational is passed over, and counted.
fn take_head(
    read: &mut BytesMut,
    scanned: &mut usize,
    informational: &mut u32,
    upstream: &Upstream,
) -> Result<Option<ReadHead>> {
    loop {
        let Some(begun) = answer::take_head(read, scanned, upstream)? else { return Ok(None) };
        if begun.head.is_final() {
            return Ok(Some(begun));
        }
        *informational += 1;
        if *informational > INFORMATIONAL_MAX {
            return Err(Error::new(ErrorType::InvalidHTTPHeader));
        }
    }
}

fn poll_read(
    stream: &mut Stream,
    read: &mut BytesMut,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    shared_read::poll_read(stream, read, SHARED_READ_BYTES_MAX, KEPT_BYTES, context)
}

fn undecodable(error: CodingError) -> Box<Error> {
    Error::because(ErrorType::ReadError, "while decoding an answer", error)
}

fn write_failed(error: io::Error) -> Box<Error> {
    Error::because(ErrorType::WriteError, "while writing a request", error)
}

fn silent() -> Box<Error> {
    Error::explain(ErrorType::ReadTimedout, "the upstream is silent")
}

fn stalled() -> Box<Error> {
    Error::explain(ErrorType::WriteTimedout, "the upstream takes no more of a request")
}

/// Ensures that the response declares where its body ends: one that ends with the connection becomes chunked.
pub(crate) fn delimit(head: &mut AnswerHead) {
    let has_body = head.may_have_body();
    let headers = &mut head.headers;
    let is_delimited = headers.contains(&TRANSFER_ENCODING) || headers.contains(&CONTENT_LENGTH);
    if has_body && !is_delimited {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

#[cfg(test)]
mod tests;
