//! Reads through a buffer that all connections of a thread share. Who waits for bytes has no memory for them,
//! and what came takes no more than its own size.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};

/// Maximum size of one read, in bytes: enough for nearly all heads, for most answers and for events.
pub(crate) const SHARED_READ_BYTES_MAX: usize = 8 * 1024;
/// Room in a kept buffer that is worth keeping, in bytes: a short event has it.
const KEPT_ROOM_BYTES_MIN: usize = 128;

thread_local! {
    /// The buffer; empty before the first read, and during one.
    static SHARED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Reads what is available, at most `bytes_max` bytes of it, and appends that to `bytes`, where a new buffer
/// has a capacity of at least `kept` bytes: so many stay allocated for what comes next. Returns the count; 0 at
/// the end of the stream.
///
/// # Errors
/// The stream's.
pub(crate) fn poll_read<S: AsyncRead + Unpin + ?Sized>(
    stream: &mut S,
    bytes: &mut BytesMut,
    bytes_max: usize,
    kept: usize,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let read = poll_with(stream, bytes_max, context, |read| append(bytes, read, kept));
    if read.is_pending() && bytes.is_empty() && !is_worth_keeping(bytes, kept) {
        // An empty buffer can still own all that was split off it.
        *bytes = BytesMut::new();
    }
    read
}

/// Like [`poll_read`], as a future. It may be dropped at any time.
///
/// # Errors
/// The stream's.
pub(crate) fn read<S: AsyncRead + Unpin + ?Sized>(
    stream: &mut S,
    bytes: &mut BytesMut,
    bytes_max: usize,
) -> impl Future<Output = io::Result<usize>> {
    poll_fn(move |context| poll_read(stream, bytes, bytes_max, 0, context))
}

/// Reads what is available, throws it away, and returns the count of its bytes; 0 at the end of the stream. It
/// may be dropped at any time.
///
/// # Errors
/// The stream's.
pub(crate) fn discard<S: AsyncRead + Unpin + ?Sized>(
    stream: &mut S,
) -> impl Future<Output = io::Result<usize>> {
    poll_fn(move |context| poll_with(stream, SHARED_READ_BYTES_MAX, context, |_| ()))
}

/// Hands what is available to `take`.
fn poll_with<S: AsyncRead + Unpin + ?Sized>(
    stream: &mut S,
    bytes_max: usize,
    context: &mut Context<'_>,
    take: impl FnOnce(&[u8]),
) -> Poll<io::Result<usize>> {
    // Taken out, so that a stream which reads others within its own read finds none and makes one.
    let mut shared = SHARED.take();
    shared.resize(SHARED_READ_BYTES_MAX, 0);
    let room = shared.get_mut(..bytes_max.min(SHARED_READ_BYTES_MAX)).unwrap_or_default();
    let mut room = ReadBuf::new(room);
    let read = Pin::new(stream).poll_read(context, &mut room);
    let count = room.filled().len();
    if count > 0 {
        take(room.filled());
    }
    SHARED.set(shared);
    ready!(read)?;
    Poll::Ready(Ok(count))
}

fn append(bytes: &mut BytesMut, read: &[u8], kept: usize) {
    if bytes.is_empty() && bytes.capacity() < read.len() {
        // Grown, it would be as large as the buffer before.
        *bytes = BytesMut::with_capacity(read.len().max(kept));
    }
    bytes.extend_from_slice(read);
}

fn is_worth_keeping(bytes: &BytesMut, kept: usize) -> bool {
    (KEPT_ROOM_BYTES_MIN..=kept).contains(&bytes.capacity())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// What is kept in these tests.
    const KEPT: usize = 1024;

    fn read_now(stream: &mut tokio::io::DuplexStream, bytes: &mut BytesMut) -> Option<usize> {
        let read =
            poll_fn(|context| poll_read(&mut *stream, bytes, SHARED_READ_BYTES_MAX, KEPT, context));
        read.now_or_never().map(|read| read.expect("a sound stream"))
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written_whatever_is_taken_in_between(
            writes in proptest::collection::vec((1..20_000_usize, 0..20_000_usize), 1..12),
        ) {
            let (mut near, mut far) = tokio::io::duplex(1 << 20);
            let (mut read, mut written, mut taken) = (BytesMut::new(), Vec::new(), Vec::new());
            for (length, takes) in writes {
                let piece: Vec<u8> = (0..=250).cycle().skip(written.len() % 251).take(length).collect();
                far.write_all(&piece).now_or_never().expect("room").expect("written");
                written.extend_from_slice(&piece);
                while read_now(&mut near, &mut read).is_some() {}
                taken.extend_from_slice(&read.split_to(takes.min(read.len())).freeze());
                // Nobody waits with more than what is kept, unless something is left to be taken.
                let waits = read_now(&mut near, &mut read).is_none();
                prop_assert!(waits && (!read.is_empty() || read.capacity() <= KEPT));
            }
            taken.extend_from_slice(&read);
            prop_assert!(taken == written);
        }
    }

    #[test]
    fn the_end_and_what_is_discarded_are_counted() {
        let (mut near, mut far) = tokio::io::duplex(1 << 20);
        far.write_all(&[7; 9000]).now_or_never().expect("room").expect("written");
        let counts: Vec<_> = (0..2).map(|_| discard(&mut near).now_or_never()).collect();
        let counts: Vec<_> = counts.into_iter().map(|count| count.expect("there").ok()).collect();
        assert_eq!(counts, [Some(SHARED_READ_BYTES_MAX), Some(9000 - SHARED_READ_BYTES_MAX)]);
        assert!(discard(&mut near).now_or_never().is_none());
        drop(far);
        let mut bytes = BytesMut::new();
        let end = read(&mut near, &mut bytes, 100).now_or_never().expect("the end");
        assert_eq!((end.ok(), bytes.capacity()), (Some(0), 0));
    }
}
