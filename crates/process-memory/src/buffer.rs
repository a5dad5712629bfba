//! Buffers of bodies, which are used again: the allocator maps what is large anew each time, and the
//! kernel zeroes every page of that.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes};
use parking_lot::Mutex;

/// The smallest buffer that is kept, in bytes. What is smaller costs the allocator next to nothing.
const KEPT_BYTES_MIN: usize = 128 * 1024;
/// Sizes of kept buffers: each is twice the one before it, up to 64 MiB.
const SIZES: usize = 10;
/// The most bytes of unused buffers, whatever the limit of bodies.
const UNUSED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Unused buffers may occupy one in this many parts of the limit of bodies.
const UNUSED_PART: usize = 4;
/// The time for which an unused buffer is kept.
const UNUSED_TIME: Duration = Duration::from_secs(1);

static UNUSED: Mutex<FreeBuffers> = Mutex::new(FreeBuffers::new());

/// A growing buffer whose memory is reused.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    /// An empty buffer with a capacity of at least `bytes`.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        let Some(size) = BufferSize::with_room_for(bytes) else {
            return Self { bytes: Vec::with_capacity(bytes) };
        };
        let kept = UNUSED.lock().take(size);
        Self { bytes: kept.unwrap_or_else(|| Vec::with_capacity(size.bytes())) }
    }

    /// Appends `more`. Where there is no room for it, all is moved to a buffer of twice the size.
    pub fn extend_from_slice(&mut self, more: &[u8]) {
        let needed = self.bytes.len().saturating_add(more.len());
        if needed > self.bytes.capacity() {
            let mut larger = Self::with_capacity(needed.max(2 * self.bytes.capacity()));
            larger.bytes.extend_from_slice(&self.bytes);
            *self = larger;
        }
        self.bytes.extend_from_slice(more);
    }

    /// Room for at most `bytes_max` more bytes, and for one at least, which a read can fill in place.
    pub fn room(&mut self, bytes_max: usize) -> impl BufMut + '_ {
        if self.bytes.len() == self.bytes.capacity() {
            let mut larger = Self::with_capacity(2 * self.bytes.capacity().max(KEPT_BYTES_MIN));
            larger.bytes.extend_from_slice(&self.bytes);
            *self = larger;
        }
        // Beyond its capacity a vector would grow to a size that is not kept.
        let room = self.bytes.capacity() - self.bytes.len();
        (&mut self.bytes).limit(bytes_max.min(room))
    }

    /// Freezes the content for sharing; the buffer is free again when the last part is dropped.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(size) = BufferSize::exactly(self.bytes.capacity()) else { return };
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let freed = UNUSED.lock().put(size, bytes, Instant::now());
        // Memory is given back while nobody waits for the others.
        drop(freed);
    }
}

/// Frees the buffers that were unused for a second, or all unused ones if they exceed a quarter of the limit
/// of bodies, which bounds them from then on. No buffer is kept before the first call.
pub fn free_unused(body_bytes_max: usize) {
    let bytes_max = (body_bytes_max / UNUSED_PART).min(UNUSED_BYTES_MAX);
    let freed = UNUSED.lock().bound(bytes_max, Instant::now());
    drop(freed);
}

/// One of the sizes of cached buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BufferSize(usize);

impl BufferSize {
    /// The smallest size class with at least this capacity; `None` above the largest.
    fn with_room_for(bytes: usize) -> Option<Self> {
        Self::exactly(bytes.checked_next_power_of_two()?)
    }

    /// The size class of a buffer with exactly this capacity, in bytes.
    fn exactly(capacity: usize) -> Option<Self> {
        (0..SIZES).map(Self).find(|size| size.bytes() == capacity)
    }

    fn bytes(self) -> usize {
        KEPT_BYTES_MIN << self.0
    }
}

/// An unused buffer, with the time of its last use.
type UnusedBuffer = (Instant, Vec<u8>);

/// The unused buffers.
struct FreeBuffers {
    /// Free buffers by size class; the most recently used is last.
    sizes: [Vec<UnusedBuffer>; SIZES],
    /// The bytes they occupy.
    bytes: usize,
    /// The bytes they may occupy.
    bytes_max: usize,
}

impl FreeBuffers {
    const fn new() -> Self {
        Self { sizes: [const { Vec::new() }; SIZES], bytes: 0, bytes_max: 0 }
    }

    /// Takes a cached buffer of this size.
    fn take(&mut self, size: BufferSize) -> Option<Vec<u8>> {
        let (_, buffer) = self.sizes[size.0].pop()?;
        self.bytes -= size.bytes();
        Some(buffer)
    }

    /// Keeps one; gives it back if there is no room for it.
    fn put(&mut self, size: BufferSize, buffer: Vec<u8>, now: Instant) -> Option<Vec<u8>> {
        if self.bytes + size.bytes() > self.bytes_max {
            return Some(buffer);
        }
        self.bytes += size.bytes();
        self.sizes[size.0].push((now, buffer));
        None
    }

    /// Sets the bound. Returns the buffers unused for a while; all if they exceed it.
    fn bound(&mut self, bytes_max: usize, now: Instant) -> Vec<UnusedBuffer> {
        self.bytes_max = bytes_max;
        let is_over = self.bytes > bytes_max;
        let is_older = |(since, _): &UnusedBuffer| {
            is_over || now.saturating_duration_since(*since) >= UNUSED_TIME
        };
        let mut older = Vec::new();
        for (index, kept) in self.sizes.iter_mut().enumerate() {
            let count = kept.partition_point(is_older);
            self.bytes -= count * BufferSize(index).bytes();
            older.extend(kept.drain(..count));
        }
        older
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_is_the_least_that_has_room() {
        let bytes = |bytes| BufferSize::with_room_for(bytes).map(BufferSize::bytes);
        assert_eq!(bytes(0), None);
        assert_eq!(bytes(64 * 1024), None);
        assert_eq!(bytes(64 * 1024 + 1), Some(KEPT_BYTES_MIN));
        assert_eq!(bytes(KEPT_BYTES_MIN), Some(KEPT_BYTES_MIN));
        assert_eq!(bytes(KEPT_BYTES_MIN + 1), Some(2 * KEPT_BYTES_MIN));
        assert_eq!(bytes(64 << 20), Some(64 << 20));
        assert_eq!(bytes((64 << 20) + 1), None);
        assert_eq!(bytes(usize::MAX), None);
    }

    #[test]
    fn what_is_gathered_is_what_came_however_it_grows() {
        let mut buffer = Buffer::default();
        let mut came = Vec::new();
        for length in [0, 1, 70_000, 200_000, 3, 900_000_usize] {
            let piece: Vec<u8> = (0..=250).cycle().take(length).collect();
            buffer.extend_from_slice(&piece);
            came.extend_from_slice(&piece);
        }
        assert!(buffer.as_ref() == came.as_slice());
        assert!(buffer.freeze() == came);
    }

    #[test]
    fn what_is_put_into_its_room_is_what_came_and_no_more_than_may() {
        let mut buffer = Buffer::default();
        let mut came = Vec::new();
        for (length, bytes_max) in [(1, 1), (300_000, 100_000), (5, 200_000), (700_000, 1 << 20)] {
            let piece: Vec<u8> = (0..=250).cycle().take(length).collect();
            let mut rest = piece.as_slice();
            while !rest.is_empty() {
                let before = buffer.as_ref().len();
                let mut room = buffer.room(bytes_max);
                assert!((1..=bytes_max).contains(&room.remaining_mut()));
                let (put, left) = rest.split_at(rest.len().min(room.remaining_mut()));
                room.put_slice(put);
                drop(room);
                assert_eq!(buffer.as_ref().len(), before + put.len());
                assert!(BufferSize::exactly(buffer.bytes.capacity()).is_some());
                rest = left;
            }
            came.extend_from_slice(&piece);
        }
        assert!(buffer.freeze() == came);
    }

    #[test]
    fn a_buffer_that_was_left_is_used_again_and_shows_nothing_of_before() {
        let mut unused = FreeBuffers { bytes_max: 1 << 20, ..FreeBuffers::new() };
        let now = Instant::now();
        let size = BufferSize::with_room_for(300_000).expect("a size");
        let mut left = Vec::with_capacity(size.bytes());
        left.push(1);
        let place = left.as_ptr();
        left.clear();
        assert!(unused.put(size, left, now).is_none());
        assert!(unused.take(BufferSize::with_room_for(100_000).expect("a size")).is_none());
        let again = unused.take(size).expect("the one that was left");
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
        assert_eq!(unused.bytes, 0);
    }

    #[test]
    fn what_nobody_uses_is_freed_and_is_never_more_than_it_may_be() {
        let mut unused = FreeBuffers::new();
        let start = Instant::now();
        let size = BufferSize::with_room_for(16 << 20).expect("a size");
        assert!(unused.put(size, Vec::with_capacity(size.bytes()), start).is_some());
        assert_eq!(unused.bound(4 * size.bytes(), start).len(), 0);
        for number in 0..4 {
            let at = start + number * UNUSED_TIME / 2;
            assert!(unused.put(size, Vec::with_capacity(size.bytes()), at).is_none());
        }
        let one_more = Vec::with_capacity(KEPT_BYTES_MIN);
        assert!(unused.put(BufferSize(0), one_more, start).is_some());
        assert_eq!(unused.bound(4 * size.bytes(), start + UNUSED_TIME).len(), 1);
        assert_eq!(unused.bytes, 3 * size.bytes());
        // A reload leaves less for them.
        assert_eq!(unused.bound(size.bytes(), start + UNUSED_TIME).len(), 3);
        assert_eq!(unused.bytes, 0);
    }
}
