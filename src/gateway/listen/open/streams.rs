//! The streams of all HTTP/2 connections together: how many there may be, by what they may take.
//!
//! A stream costs who opens it some ten bytes, and the gateway a task and a header for as long as the
//! answer is not taken. So streams have a bound of their own, whoever asks; those of connections on
//! which nobody has shown a key have a small one, with a share for each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderMap;
use parking_lot::Mutex;

use super::Member;
use crate::metrics::{Metrics, StreamRefused};

/// Least memory of a stream: measured, 25 KiB.
pub(super) const STREAM_BYTES: usize = 32 * 1024;
/// Streams of one connection at a time, until one of its requests was authenticated. Browsers ask for
/// a page and its parts with fewer.
const STRANGERS_ON_A_CONNECTION: usize = 8;
/// Streams of all such connections together: 32 MiB.
const STRANGERS_MAX: usize = 1024;
/// Unauthenticated streams of one address.
const STRANGERS_OF_AN_ADDRESS: usize = STRANGERS_MAX / 8;

/// Memory of a stream with this header, in bytes.
pub(crate) fn stream_bytes(headers: &HeaderMap) -> usize {
    let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    STREAM_BYTES + fields.sum::<usize>()
}

/// The streams that are being served.
pub(crate) struct Streams {
    bytes_max: usize,
    known_bytes: AtomicUsize,
    strange_bytes: AtomicUsize,
    strangers: Mutex<HashMap<IpAddr, usize>>,
    metrics: Option<Arc<Metrics>>,
}

/// A stream's place among them, given back on drop.
pub(crate) struct StreamPlace {
    streams: Arc<Streams>,
    bytes: usize,
    is_known: bool,
    network: Option<IpAddr>,
}

impl Streams {
    /// At most so many, with small headers.
    pub(super) fn new(streams_max: usize, metrics: Option<Arc<Metrics>>) -> Self {
        Self {
            bytes_max: streams_max.saturating_mul(STREAM_BYTES),
            known_bytes: AtomicUsize::new(0),
            strange_bytes: AtomicUsize::new(0),
            strangers: Mutex::default(),
            metrics,
        }
    }

    /// Memory for the streams of authenticated customers, in bytes.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Counts a stream that was turned away.
    pub(crate) fn turned_away(&self, why: StreamRefused) {
        if let Some(metrics) = &self.metrics {
            metrics.stream_refused(why);
        }
    }

    /// A place for one more stream on `member`, which has `active` of them.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn enter(
        self: &Arc<Self>,
        member: &Member,
        headers: &HeaderMap,
        active: usize,
    ) -> Result<StreamPlace, StreamRefused> {
        let is_known = member.is_known();
        if !is_known && active >= STRANGERS_ON_A_CONNECTION {
            return Err(StreamRefused::Connection);
        }
        let bytes = stream_bytes(headers);
        let (taken, bytes_max, full) = if is_known {
            (&self.known_bytes, self.bytes_max, StreamRefused::All)
        } else {
            let bytes_max = self.bytes_max.min(STRANGERS_MAX * STREAM_BYTES);
            (&self.strange_bytes, bytes_max, StreamRefused::Strangers)
        };
        if taken.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > bytes_max {
            taken.fetch_sub(bytes, Ordering::Relaxed);
            return Err(full);
        }
        let mut place = StreamPlace { streams: Arc::clone(self), bytes, is_known, network: None };
        if let Some(network) = member.network.filter(|_| !is_known) {
            let mut strangers = self.strangers.lock();
            let of_address = strangers.entry(network).or_default();
            if *of_address >= STRANGERS_OF_AN_ADDRESS {
                return Err(StreamRefused::Address);
            }
            *of_address += 1;
            place.network = Some(network);
        }
        Ok(place)
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let Self { streams, bytes, is_known, network } = self;
        let taken = if *is_known { &streams.known_bytes } else { &streams.strange_bytes };
        taken.fetch_sub(*bytes, Ordering::Relaxed);
        if let Some(network) = network {
            let mut strangers = streams.strangers.lock();
            if let Some(of_address) = strangers.get_mut(network) {
                *of_address = of_address.saturating_sub(1);
                if *of_address == 0 {
                    strangers.remove(network);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(address: &str) -> Member {
        Member::new(Some(address.parse().expect("an address")), None)
    }

    #[test]
    fn strangers_have_few_streams_on_a_connection_and_a_share_by_address() {
        let (streams, none) = (Arc::new(Streams::new(100_000, None)), HeaderMap::new());
        let one = member("192.0.2.1");
        let enter = |member: &Member, active| streams.enter(member, &none, active);
        let last = STRANGERS_ON_A_CONNECTION - 1;
        drop(enter(&one, last).expect("a place"));
        assert_eq!(enter(&one, last + 1).err(), Some(StreamRefused::Connection), "one too many");
        let taken: Vec<_> = (0..STRANGERS_OF_AN_ADDRESS).map(|_| enter(&one, 0)).collect();
        assert!(taken.iter().all(Result::is_ok), "the share of an address");
        assert_eq!(enter(&one, 0).err(), Some(StreamRefused::Address));
        assert!(enter(&member("192.0.2.2"), 0).is_ok(), "another address has its own");
        one.know();
        assert!(enter(&one, 99).is_ok(), "who is known has more");
        drop(taken);
        assert!(streams.strangers.lock().is_empty(), "all places were given back");
        assert_eq!(streams.strange_bytes.load(Ordering::Relaxed), 0, "and what they took");
    }

    #[test]
    fn all_strangers_together_leave_room_for_those_who_are_known() {
        let (streams, none) = (Arc::new(Streams::new(STRANGERS_MAX, None)), HeaderMap::new());
        let everybody = Member::new(None, None);
        let taken: Vec<_> =
            (0..STRANGERS_MAX).map(|_| streams.enter(&everybody, &none, 0)).collect();
        assert!(taken.iter().all(Result::is_ok), "the bound of strangers");
        let refused = streams.enter(&everybody, &none, 0).err();
        assert_eq!(refused, Some(StreamRefused::Strangers));
        let known = Member::new(None, None);
        known.know();
        let mut large = HeaderMap::new();
        large.insert("x", http::HeaderValue::from_bytes(&[b'y'; STREAM_BYTES]).expect("a value"));
        let taken: Vec<_> =
            (0..STRANGERS_MAX).map_while(|_| streams.enter(&known, &large, 0).ok()).collect();
        let expected = STRANGERS_MAX / 2 - 1..=STRANGERS_MAX / 2;
        assert!(expected.contains(&taken.len()), "large headers count: {} fit", taken.len());
    }
}
