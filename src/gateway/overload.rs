//! What is turned away because the gateway has enough to do: quickly, and before a body is read, so
//! that those who are served do not slow down with those who are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::error::{ErrorKind, GatewayError};

/// When to try again: places become free with every answer.
const RETRY_PLACE: Duration = Duration::from_secs(1);

/// Why a request was turned away, as the metric says it.
pub(super) const IN_FLIGHT: &str = "requests_in_flight";
/// The same.
pub(super) const BODY_MEMORY: &str = "body_memory";

/// The requests that are being served, over all listeners.
#[derive(Debug, Default)]
pub(super) struct InFlight(Arc<AtomicUsize>);

/// A request's place among them, given back on drop.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicUsize>);

impl InFlight {
    /// A place, while fewer than `max` are taken.
    pub(super) fn enter(&self, max: usize) -> Option<Place> {
        let place = Place(Arc::clone(&self.0));
        (self.0.fetch_add(1, Ordering::Relaxed) < max).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a customer reads for whom there is no place.
pub(super) fn no_place() -> GatewayError {
    let message = "Too many requests are in flight. Try again shortly.";
    GatewayError::new(ErrorKind::Overloaded, message).retry_after(RETRY_PLACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_given_back() {
        let in_flight = InFlight::default();
        let places: Vec<_> = (0..3).map(|_| in_flight.enter(2)).collect();
        let taken: Vec<_> = places.iter().map(Option::is_some).collect();
        assert_eq!(taken, [true, true, false]);
        assert!(in_flight.enter(3).is_some(), "who was turned away takes no place");
        drop(places);
        assert!(in_flight.enter(1).is_some(), "all are free again");
    }
}
