//! The queue of a loopback response, from its session to its caller: a bounded number of pieces, and the
//! settlement.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::Piece;
use crate::finished::RequestSettlement;

/// Maximum number of queued pieces of an answer.
const PIECES_MAX: usize = 16;
/// Bytes of an answer with which no further piece is taken, as in a socket's send queue. A piece is what an
/// upstream sent at once, up to 64 KiB: 16 of them for each turn that nobody read, over some 140 WebSockets,
/// ended a process in 150 MiB.
const BYTES_MAX: usize = 32 * 1024;

#[derive(Default)]
struct PieceQueue {
    pieces: VecDeque<Piece>,
    /// Total size of `pieces`, in bytes.
    bytes: usize,
    settled: Option<RequestSettlement>,
    /// Nothing more is written.
    is_over: bool,
    /// The reader was dropped.
    reader_dropped: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// The session's end of the queue.
pub(super) struct QueueWriter(Arc<Mutex<PieceQueue>>);

/// The caller's end of the queue.
pub(super) struct QueueReader(Arc<Mutex<PieceQueue>>);

/// Sends the settlement of a request to its caller.
#[derive(Clone)]
pub(super) struct SettlementSender(Arc<Mutex<PieceQueue>>);

/// The error of a queue without a reader.
#[derive(Debug)]
pub(super) struct ReaderDropped;

/// Creates an empty queue.
pub(super) fn queue() -> (QueueWriter, SettlementSender, QueueReader) {
    let state = Arc::<Mutex<PieceQueue>>::default();
    (QueueWriter(Arc::clone(&state)), SettlementSender(Arc::clone(&state)), QueueReader(state))
}

/// Replaces the waker to notify.
fn note(waker: &mut Option<Waker>, context: &Context<'_>) {
    if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
        *waker = Some(context.waker().clone());
    }
}

/// Wakes the waiting side, if there is one.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl QueueWriter {
    /// Adds a piece, or returns it if the queue is full.
    ///
    /// # Errors
    /// When nobody reads.
    pub(super) fn try_send(&self, piece: Piece) -> Result<Option<Piece>, ReaderDropped> {
        let mut state = self.0.lock();
        if state.reader_dropped {
            return Err(ReaderDropped);
        }
        if state.pieces.len() >= PIECES_MAX || state.bytes >= BYTES_MAX {
            return Ok(Some(piece));
        }
        state.bytes += piece.bytes();
        state.pieces.push_back(piece);
        let reader = state.reader.take();
        drop(state);
        wake(reader);
        Ok(None)
    }

    /// Adds a piece as soon as there is room for it.
    ///
    /// # Errors
    /// When nobody reads.
    pub(super) async fn send(&self, piece: Piece) -> Result<(), ReaderDropped> {
        let mut waiting = Some(piece);
        poll_fn(|context| {
            note(&mut self.0.lock().writer, context);
            let Some(piece) = waiting.take() else { return Poll::Ready(Ok(())) };
            match self.try_send(piece) {
                Ok(None) => Poll::Ready(Ok(())),
                Ok(back) => {
                    waiting = back;
                    Poll::Pending
                }
                Err(left) => Poll::Ready(Err(left)),
            }
        })
        .await
    }

    /// Waits until the reader was dropped.
    pub(super) async fn left(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.reader_dropped {
                return Poll::Ready(());
            }
            note(&mut state.writer, context);
            Poll::Pending
        })
        .await;
    }

    /// Ends the queue at its current position.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.is_over = true;
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }
}

impl Drop for QueueWriter {
    fn drop(&mut self) {
        self.close();
    }
}

impl SettlementSender {
    pub(super) fn complete(&self, settled: RequestSettlement) {
        let mut state = self.0.lock();
        state.settled = Some(settled);
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }
}

impl QueueReader {
    /// Takes the next piece without waiting: `None` if none is queued, `Some(None)` at the end.
    pub(super) fn try_next(&self) -> Option<Option<Piece>> {
        let mut state = self.0.lock();
        let Some(next) = state.pieces.pop_front() else { return state.is_over.then_some(None) };
        state.bytes -= next.bytes();
        let writer = state.writer.take();
        drop(state);
        wake(writer);
        Some(Some(next))
    }

    /// Waits for the next piece; `None` at the end.
    pub(super) async fn next(&self) -> Option<Piece> {
        self.wait(Self::try_next).await
    }

    /// The settlement, or `Some(None)` once the request is over without one.
    pub(super) fn try_settled(&self) -> Option<Option<RequestSettlement>> {
        let state = self.0.lock();
        state.settled.map(Some).or(state.is_over.then_some(None))
    }

    /// Waits for the settlement; `None` for a request without one.
    pub(super) async fn settled(&self) -> Option<RequestSettlement> {
        self.wait(Self::try_settled).await
    }

    async fn wait<T>(&self, come: impl Fn(&Self) -> Option<T>) -> T {
        poll_fn(|context| {
            if let Some(it) = come(self) {
                return Poll::Ready(it);
            }
            note(&mut self.0.lock().reader, context);
            // It may have come in between.
            come(self).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

impl Drop for QueueReader {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.reader_dropped = true;
        let pieces = std::mem::take(&mut state.pieces);
        let writer = state.writer.take();
        drop(state);
        wake(writer);
        drop(pieces);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use tokio::time::timeout;

    use super::*;

    fn piece(number: u8) -> Piece {
        Piece::Data(Bytes::copy_from_slice(&[number]))
    }

    fn number(piece: Option<Piece>) -> Option<u8> {
        match piece? {
            Piece::Data(data) => data.first().copied(),
            Piece::Head(_) | Piece::End => None,
        }
    }

    #[tokio::test]
    async fn pieces_come_in_order_and_wait_for_their_reader() {
        let (writer, _, reader) = queue();
        let writing = tokio::spawn(async move {
            for number in 0..100 {
                writer.send(piece(number)).await.expect("somebody reads");
            }
        });
        tokio::task::yield_now().await;
        assert!(!writing.is_finished(), "there is room for a few");
        for expected in 0..100 {
            assert_eq!(number(reader.next().await), Some(expected));
        }
        writing.await.expect("all are written");
        assert_eq!(number(reader.next().await), None, "it is over");
    }

    #[tokio::test]
    async fn large_pieces_wait_at_the_writer() {
        let (writer, _, reader) = queue();
        let large = || Piece::Data(Bytes::from(vec![0; 2 * BYTES_MAX]));
        assert!(matches!(writer.try_send(large()), Ok(None)), "one is always taken");
        assert!(matches!(writer.try_send(large()), Ok(Some(_))), "a second one waits");
        assert!(reader.next().await.is_some());
        assert!(matches!(writer.try_send(large()), Ok(None)), "there is room again");
    }

    #[tokio::test]
    async fn a_writer_fails_once_its_reader_was_dropped() {
        let (writer, _, reader) = queue();
        let left = timeout(Duration::from_millis(10), writer.left()).await;
        assert!(left.is_err(), "somebody does");
        for number in 0..16 {
            writer.send(piece(number)).await.expect("room");
        }
        let waiting = tokio::spawn(async move {
            assert!(writer.send(piece(16)).await.is_err());
            writer.left().await;
        });
        tokio::task::yield_now().await;
        drop(reader);
        timeout(Duration::from_secs(5), waiting).await.expect("woken").expect("told");
    }

    #[tokio::test]
    async fn behind_what_was_written_to_a_queue_that_was_closed_nothing_comes() {
        let (writer, _, reader) = queue();
        writer.send(piece(1)).await.expect("room");
        writer.close();
        assert_eq!(number(reader.next().await), Some(1));
        assert_eq!(number(reader.next().await), None, "its writer is there");
        assert!(reader.settled().await.is_none());
    }

    #[tokio::test]
    async fn a_request_that_was_never_settled_gives_none_at_its_end() {
        let (writer, completion, reader) = queue();
        let waiting = tokio::spawn(async move { reader.settled().await });
        tokio::task::yield_now().await;
        drop((writer, completion));
        let settled = timeout(Duration::from_secs(5), waiting).await.expect("woken");
        assert!(settled.expect("told").is_none());
    }
}
