//! Admission: [slots](crate::gateway::listen::request_slots) for requests, and the time limits of customers and
//! of requests that are shed.

use std::sync::Arc;
use std::time::Duration;

use pingora::Error;
use pingora_proxy::Session;

use crate::error::GatewayError;
use crate::gateway::listen::connection_table;
use crate::gateway::listen::origin::Origin;
use crate::gateway::listen::request_slots::RequestSlot;
use crate::gateway::request::content_path;
use crate::gateway::request::context::RequestContext;
use crate::gateway::request::envelope::Envelope;
use crate::gateway::request::services::Gateway;
use crate::ledger::Key;
use crate::pipeline;

/// Write timeout of the response to a request that is shed. It fits into a socket's buffer, and a client that does
/// not read it takes no slot to wait in.
const SHED_TIMEOUT: Duration = Duration::from_secs(1);

/// Bounds the time of a response that was admitted to no slot.
pub(crate) fn use_shed_timeouts(session: &mut Session) {
    session.set_write_timeout(Some(SHED_TIMEOUT));
    session.as_downstream_mut().set_total_drain_timeout(Some(SHED_TIMEOUT));
}

impl Gateway {
    /// Authenticates the key of the request, and takes a slot for its account.
    ///
    /// # Errors
    /// The key is missing or not valid; `Overloaded` or `RateLimited` without a slot.
    pub(crate) fn admit_customer(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<Arc<Key>, GatewayError> {
        let head = session.req_header();
        let headers = &head.headers;
        // Google's API takes the key in the query as well. Elsewhere it is not read there, since URLs are logged.
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
        let stream_bytes = session.as_http2().map(|_| connection_table::stream_bytes(headers));
        ctx.key = Some(Arc::clone(&key));
        let limits = &ctx.snapshot.limits;
        let slot = self.request_slots.customer(account, limits).and_then(|slot| {
            let bounds = self.open.shared_bounds(limits);
            self.request_slots.attach_shares(slot, account, origin, limits, bounds, stream_bytes)
        });
        ctx.admission.slot =
            Some(slot.map_err(|error| shed(session, &mut ctx.admission.is_shed, error))?);
        let limits = &ctx.snapshot.limits;
        session.set_read_timeout(Some(limits.read_timeout));
        session.set_write_timeout(Some(limits.write_timeout));
        Ok(key)
    }

    /// Takes a slot for an upstream call, unless the request has one.
    ///
    /// # Errors
    /// `Overloaded` when all are taken, `RateLimited` when the account has its share.
    pub(crate) fn enter_upstream_slot(&self, ctx: &mut RequestContext) -> Result<(), GatewayError> {
        if ctx.admission.upstream_slot.is_none() {
            let account = ctx.admission.slot.as_ref().and_then(RequestSlot::account);
            let limits = &ctx.snapshot.limits;
            ctx.admission.upstream_slot =
                Some(self.upstream_slots.enter(&self.open, limits, account)?);
        }
        Ok(())
    }

    /// Takes a slot for a request without a valid key, or that needs none.
    ///
    /// # Errors
    /// `RateLimited` without a slot.
    pub(crate) fn admit_unauthenticated(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<(), GatewayError> {
        let address = ctx.client(session);
        let slot = self.request_slots.unauthenticated(address, &ctx.snapshot.limits);
        ctx.admission.slot =
            Some(slot.map_err(|error| shed(session, &mut ctx.admission.is_shed, error))?);
        Ok(())
    }

    /// Ends a failed request. One without a slot takes one for unauthenticated clients, so that error
    /// responses are limited too; the error is then that slot's refusal, if any.
    pub(crate) fn refuse(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
        error: GatewayError,
    ) -> Box<Error> {
        let has_slot = ctx.admission.slot.is_some() || ctx.admission.is_shed;
        let entered = if has_slot { Ok(()) } else { self.admit_unauthenticated(session, ctx) };
        ctx.fail(entered.err().unwrap_or(error))
    }
}

/// Marks a request as shed.
fn shed(session: &mut Session, is_shed: &mut bool, error: GatewayError) -> GatewayError {
    *is_shed = true;
    if let Some(origin) = Origin::of_session(session).filter(|_| session.as_http2().is_none()) {
        // Over HTTP/1.1 its connection has no other request, so it may be closed for others at once.
        origin.rest();
    }
    session.set_write_timeout(Some(SHED_TIMEOUT));
    error
}
