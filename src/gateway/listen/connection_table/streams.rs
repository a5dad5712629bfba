//! The streams of all HTTP/2 connections together: how many there may be, by what they may take.
//!
//! A stream costs its client some ten bytes, and the gateway a task and a header until the response is taken.
//! So streams have a bound of their own, and those of unauthenticated connections a small one, with a share for
//! each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderMap;
use parking_lot::Mutex;

use super::ConnectionState;
use crate::metrics::{Metrics, StreamRefused};

/// Least memory of a stream: measured, 25 KiB.
pub(super) const STREAM_BYTES: usize = 32 * 1024;
/// Streams of one connection at a time, until one of its requests was authenticated. Browsers ask for
/// a page and its parts with fewer.
const UNAUTHENTICATED_ON_A_CONNECTION: usize = 8;
/// Streams of all such connections together: 32 MiB.
const UNAUTHENTICATED_MAX: usize = 1024;
/// Unauthenticated streams of one address.
const UNAUTHENTICATED_OF_AN_ADDRESS: usize = UNAUTHENTICATED_MAX / 8;

/// Memory of a stream with this header, in bytes.
pub(crate) fn stream_bytes(headers: &HeaderMap) -> usize {
    let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    STREAM_BYTES + fields.sum::<usize>()
}

/// Table of HTTP/2 streams that are being served.
pub(crate) struct Streams {
    bytes_max: usize,
    authenticated_bytes: AtomicUsize,
    unauthenticated_bytes: AtomicUsize,
    unauthenticated: Mutex<HashMap<IpAddr, usize>>,
    metrics: Option<Arc<Metrics>>,
}

/// A stream's share of the limits, returned on drop.
pub(crate) struct StreamSlot {
    streams: Arc<Streams>,
    bytes: usize,
    is_authenticated: bool,
    network: Option<IpAddr>,
}

impl Streams {
    /// A table for at most `streams_max` streams with small headers.
    pub(super) fn new(streams_max: usize, metrics: Option<Arc<Metrics>>) -> Self {
        Self {
            bytes_max: streams_max.saturating_mul(STREAM_BYTES),
            authenticated_bytes: AtomicUsize::new(0),
            unauthenticated_bytes: AtomicUsize::new(0),
            unauthenticated: Mutex::default(),
            metrics,
        }
    }

    /// Memory for the streams of authenticated customers, in bytes.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Counts a refused stream.
    pub(crate) fn turned_away(&self, why: StreamRefused) {
        if let Some(metrics) = &self.metrics {
            metrics.stream_refused(why);
        }
    }

    /// Takes a slot for another stream on a connection with `active` streams.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn enter(
        self: &Arc<Self>,
        state: &ConnectionState,
        headers: &HeaderMap,
        active: usize,
    ) -> Result<StreamSlot, StreamRefused> {
        let is_authenticated = state.is_authenticated();
        if !is_authenticated && active >= UNAUTHENTICATED_ON_A_CONNECTION {
            return Err(StreamRefused::Connection);
        }
        let bytes = stream_bytes(headers);
        let (taken, bytes_max, full) = if is_authenticated {
            (&self.authenticated_bytes, self.bytes_max, StreamRefused::All)
        } else {
            let bytes_max = self.bytes_max.min(UNAUTHENTICATED_MAX * STREAM_BYTES);
            (&self.unauthenticated_bytes, bytes_max, StreamRefused::Unauthenticated)
        };
        // Added before it is compared: two streams cannot both take the last room.
        if taken.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > bytes_max {
            taken.fetch_sub(bytes, Ordering::Relaxed);
            return Err(full);
        }
        let mut slot =
            StreamSlot { streams: Arc::clone(self), bytes, is_authenticated, network: None };
        if let Some(network) = state.network.filter(|_| !is_authenticated) {
            let mut unauthenticated = self.unauthenticated.lock();
            let of_address = unauthenticated.entry(network).or_default();
            if *of_address >= UNAUTHENTICATED_OF_AN_ADDRESS {
                // The slot is dropped here and gives its bytes back.
                return Err(StreamRefused::Address);
            }
            *of_address += 1;
            slot.network = Some(network);
        }
        Ok(slot)
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let Self { streams, bytes, is_authenticated, network } = self;
        let taken = if *is_authenticated {
            &streams.authenticated_bytes
        } else {
            &streams.unauthenticated_bytes
        };
        taken.fetch_sub(*bytes, Ordering::Relaxed);
        if let Some(network) = network {
            let mut unauthenticated = streams.unauthenticated.lock();
            if let Some(of_address) = unauthenticated.get_mut(network) {
                *of_address = of_address.saturating_sub(1);
                if *of_address == 0 {
                    unauthenticated.remove(network);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(address: &str) -> ConnectionState {
        ConnectionState::new(Some(address.parse().expect("an address")), None)
    }

    #[test]
    fn unauthenticated_clients_have_few_streams_on_a_connection_and_a_share_by_address() {
        let (streams, none) = (Arc::new(Streams::new(100_000, None)), HeaderMap::new());
        let one = state("192.0.2.1");
        let enter = |state: &ConnectionState, active| streams.enter(state, &none, active);
        let last = UNAUTHENTICATED_ON_A_CONNECTION - 1;
        drop(enter(&one, last).expect("a slot"));
        assert_eq!(enter(&one, last + 1).err(), Some(StreamRefused::Connection), "one too many");
        let taken: Vec<_> = (0..UNAUTHENTICATED_OF_AN_ADDRESS).map(|_| enter(&one, 0)).collect();
        assert!(taken.iter().all(Result::is_ok), "the share of an address");
        assert_eq!(enter(&one, 0).err(), Some(StreamRefused::Address));
        assert!(enter(&state("192.0.2.2"), 0).is_ok(), "another address has its own");
        one.set_authenticated();
        assert!(enter(&one, 99).is_ok(), "who is known has more");
        drop(taken);
        assert!(streams.unauthenticated.lock().is_empty(), "all slots were given back");
        assert_eq!(streams.unauthenticated_bytes.load(Ordering::Relaxed), 0, "and what they took");
    }

    #[test]
    fn unauthenticated_streams_together_leave_room_for_customers() {
        let (streams, none) = (Arc::new(Streams::new(UNAUTHENTICATED_MAX, None)), HeaderMap::new());
        let everybody = ConnectionState::new(None, None);
        let taken: Vec<_> =
            (0..UNAUTHENTICATED_MAX).map(|_| streams.enter(&everybody, &none, 0)).collect();
        assert!(taken.iter().all(Result::is_ok), "the bound of unauthenticated clients");
        let refused = streams.enter(&everybody, &none, 0).err();
        assert_eq!(refused, Some(StreamRefused::Unauthenticated));
        let authenticated = ConnectionState::new(None, None);
        authenticated.set_authenticated();
        let mut large = HeaderMap::new();
        large.insert("x", http::HeaderValue::from_bytes(&[b'y'; STREAM_BYTES]).expect("a value"));
        let taken: Vec<_> = (0..UNAUTHENTICATED_MAX)
            .map_while(|_| streams.enter(&authenticated, &large, 0).ok())
            .collect();
        let expected = UNAUTHENTICATED_MAX / 2 - 1..=UNAUTHENTICATED_MAX / 2;
        assert!(expected.contains(&taken.len()), "large headers count: {} fit", taken.len());
    }
}
