//! Who gets which [place](crate::gateway::listen::places), and with it the time for bodies and answers: little for
//! everybody, until a valid key was shown.

use std::sync::Arc;
use std::time::Duration;

use pingora::Error;
use pingora_proxy::Session;

use crate::error::GatewayError;
use crate::gateway::listen::open;
use crate::gateway::listen::origin::Origin;
use crate::gateway::request::content_path;
use crate::gateway::request::context::Exchange;
use crate::gateway::request::envelope::Envelope;
use crate::gateway::request::services::Gateway;
use crate::ledger::Key;
use crate::pipeline;

/// The time within which one who is turned away must take the answer: it fits into what a connection
/// buffers, and who does not read it has no place to wait in.
const SHED_TIMEOUT: Duration = Duration::from_secs(1);

/// Gives a request that has shown nothing yet the time of strangers.
pub(crate) fn hurry(session: &mut Session, exchange: &Exchange) {
    let limits = &exchange.snapshot.limits;
    let short = limits.unauthenticated.timeout;
    session.set_read_timeout(Some(limits.read_timeout.min(short)));
    session.set_write_timeout(Some(limits.write_timeout.min(short)));
    // Of a body that nobody reads; behind an answer it holds the request up.
    session.as_downstream_mut().set_total_drain_timeout(Some(short));
}

/// Gives a request no time at all: it needs no place to wait in.
pub(crate) fn hurry_on(session: &mut Session) {
    session.set_write_timeout(Some(SHED_TIMEOUT));
    session.as_downstream_mut().set_total_drain_timeout(Some(SHED_TIMEOUT));
}

impl Gateway {
    /// The key that the request shows, and a place among those of customers.
    ///
    /// # Errors
    /// What is wrong with the key; `Overloaded` or `RateLimited` without a place.
    pub(crate) fn admit_customer(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<Arc<Key>, GatewayError> {
        let head = session.req_header();
        let headers = &head.headers;
        // Only where Google's clients ask: elsewhere a key has no business in an address.
        let in_query = match exchange.envelope {
            Envelope::Google => content_path::key_in_query(head.uri.query()),
            _ => None,
        };
        let key = pipeline::authenticate(
            &self.ledger,
            headers,
            in_query.as_deref(),
            exchange.id.began_at(),
        )?;
        let account = key.account.number();
        let origin = Origin::of_session(session);
        if let Some(origin) = origin {
            origin.authenticate(account);
        }
        let stream_bytes = session.as_http2().map(|_| open::stream_bytes(headers));
        exchange.key = Some(Arc::clone(&key));
        let limits = &exchange.snapshot.limits;
        let place = self.places.customer(account, limits).and_then(|place| {
            let bounds = self.open.shared_bounds(limits);
            self.places.on_its_way(place, account, origin, limits, bounds, stream_bytes)
        });
        exchange.place = Some(place.map_err(|error| shed(session, &mut exchange.is_shed, error))?);
        let limits = &exchange.snapshot.limits;
        session.set_read_timeout(Some(limits.read_timeout));
        session.set_write_timeout(Some(limits.write_timeout));
        Ok(key)
    }

    /// Takes a slot for a call to an upstream, unless the request has one.
    ///
    /// # Errors
    /// `Overloaded` when all are taken, `RateLimited` when the account has its share.
    pub(crate) fn enter_upstream_slot(&self, exchange: &mut Exchange) -> Result<(), GatewayError> {
        if exchange.upstream_slot.is_none() {
            let account = exchange.place.as_ref().and_then(|place| place.account());
            let limits = &exchange.snapshot.limits;
            exchange.upstream_slot = Some(self.slots.enter(&self.open, limits, account)?);
        }
        Ok(())
    }

    /// A place for a request that has shown no valid key, or needs none.
    ///
    /// # Errors
    /// `RateLimited` without a place.
    pub(crate) fn admit_stranger(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<(), GatewayError> {
        let address = exchange.client(session);
        let place = self.places.unauthenticated(address, &exchange.snapshot.limits);
        exchange.place = Some(place.map_err(|error| shed(session, &mut exchange.is_shed, error))?);
        Ok(())
    }

    /// Ends a request that fails. Who has no place yet is a stranger, and is told so among them.
    pub(crate) fn refuse(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
        error: GatewayError,
    ) -> Box<Error> {
        let has_place = exchange.place.is_some() || exchange.is_shed;
        let entered = if has_place { Ok(()) } else { self.admit_stranger(session, exchange) };
        exchange.fail(entered.err().unwrap_or(error))
    }
}

/// Notes that a request was turned away.
fn shed(session: &mut Session, is_shed: &mut bool, error: GatewayError) -> GatewayError {
    *is_shed = true;
    if let Some(origin) = Origin::of_session(session).filter(|_| session.as_http2().is_none()) {
        origin.rest();
    }
    session.set_write_timeout(Some(SHED_TIMEOUT));
    error
}
