//! Admission: [slots](crate::gateway::listen::places) and time limits, which are short until a valid key was
//! shown.

use std::sync::Arc;
use std::time::Duration;

use pingora::Error;
use pingora_proxy::Session;

use crate::error::GatewayError;
use crate::gateway::listen::open;
use crate::gateway::listen::origin::Origin;
use crate::gateway::request::content_path;
use crate::gateway::request::context::RequestContext;
use crate::gateway::request::envelope::Envelope;
use crate::gateway::request::services::Gateway;
use crate::ledger::Key;
use crate::pipeline;

/// The time within which one who is turned away must take the answer: it fits into what a connection
/// buffers, and who does not read it has no place to wait in.
const SHED_TIMEOUT: Duration = Duration::from_secs(1);

/// Gives a request that has shown nothing yet the time of strangers.
pub(crate) fn use_unauthenticated_timeouts(session: &mut Session, ctx: &RequestContext) {
    let limits = &ctx.snapshot.limits;
    let short = limits.unauthenticated.timeout;
    session.set_read_timeout(Some(limits.read_timeout.min(short)));
    session.set_write_timeout(Some(limits.write_timeout.min(short)));
    // Of a body that nobody reads; behind an answer it holds the request up.
    session.as_downstream_mut().set_total_drain_timeout(Some(short));
}

/// Gives a request no time at all: it needs no place to wait in.
pub(crate) fn use_shed_timeouts(session: &mut Session) {
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
        ctx: &mut RequestContext,
    ) -> Result<Arc<Key>, GatewayError> {
        let head = session.req_header();
        let headers = &head.headers;
        // Only where Google's clients ask: elsewhere a key has no business in an address.
        let in_query = match ctx.routing.envelope {
            Envelope::Google => content_path::key_in_query(head.uri.query()),
            _ => None,
        };
        let key =
            pipeline::authenticate(&self.ledger, headers, in_query.as_deref(), ctx.id.began_at())?;
        let account = key.account.number();
        let origin = Origin::of_session(session);
        if let Some(origin) = origin {
            origin.authenticate(account);
        }
        let stream_bytes = session.as_http2().map(|_| open::stream_bytes(headers));
        ctx.key = Some(Arc::clone(&key));
        let limits = &ctx.snapshot.limits;
        let place = self.admission.customer(account, limits).and_then(|place| {
            let bounds = self.open.shared_bounds(limits);
            self.admission.on_its_way(place, account, origin, limits, bounds, stream_bytes)
        });
        ctx.admission.slot =
            Some(place.map_err(|error| shed(session, &mut ctx.admission.is_shed, error))?);
        let limits = &ctx.snapshot.limits;
        session.set_read_timeout(Some(limits.read_timeout));
        session.set_write_timeout(Some(limits.write_timeout));
        Ok(key)
    }

    /// Takes a slot for a call to an upstream, unless the request has one.
    ///
    /// # Errors
    /// `Overloaded` when all are taken, `RateLimited` when the account has its share.
    pub(crate) fn enter_upstream_slot(&self, ctx: &mut RequestContext) -> Result<(), GatewayError> {
        if ctx.admission.upstream_slot.is_none() {
            let account = ctx.admission.slot.as_ref().and_then(|place| place.account());
            let limits = &ctx.snapshot.limits;
            ctx.admission.upstream_slot = Some(self.slots.enter(&self.open, limits, account)?);
        }
        Ok(())
    }

    /// A place for a request that has shown no valid key, or needs none.
    ///
    /// # Errors
    /// `RateLimited` without a place.
    pub(crate) fn admit_unauthenticated(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<(), GatewayError> {
        let address = ctx.client(session);
        let place = self.admission.unauthenticated(address, &ctx.snapshot.limits);
        ctx.admission.slot =
            Some(place.map_err(|error| shed(session, &mut ctx.admission.is_shed, error))?);
        Ok(())
    }

    /// Ends a request that fails. Who has no place yet is a stranger, and is told so among them.
    pub(crate) fn refuse(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
        error: GatewayError,
    ) -> Box<Error> {
        let has_place = ctx.admission.slot.is_some() || ctx.admission.is_shed;
        let entered = if has_place { Ok(()) } else { self.admit_unauthenticated(session, ctx) };
        ctx.fail(entered.err().unwrap_or(error))
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
