//! `upstream_peer`: the next target of a request.

use std::time::Instant;

use pingora::Result;

use crate::balance::Candidate;
use crate::gateway::request::context::RequestContext;
use crate::gateway::request::services::Gateway;

/// Chooses the next target, and takes what a call to it needs: a slot for free calls, a token.
///
/// # Errors
/// What `fail_to_proxy` is to tell the customer, or the log.
pub(super) async fn choose(gateway: &Gateway, ctx: &mut RequestContext) -> Result<Candidate> {
    loop {
        let sending = ctx.sending()?;
        let Some(mut candidate) = sending.next(&gateway.metrics) else {
            let failure = sending.give_up();
            return Err(ctx.fail(failure));
        };
        if candidate.kind().is_free() {
            let limits = ctx.snapshot.limits.free_calls;
            // Most requests are paid for, and have no room for this.
            match Box::pin(gateway.enter_free_call(&candidate, &limits)).await {
                Ok(slot) => candidate.begin_free(slot, Instant::now()),
                Err(refusal) => {
                    drop(candidate);
                    return Err(ctx.fail(refusal));
                }
            }
        }
        let sending = ctx.sending()?;
        if let Some(auth) = candidate.auth().cloned() {
            let (began, account) = (Instant::now(), sending.admitted.resolved.key.account);
            // Most upstreams take a key, and their requests have no room for this.
            let token = Box::pin(gateway.outbound.credentials.token(&auth, account)).await;
            match token {
                Ok(token) => candidate.token = Some(token),
                Err(cause) => {
                    let passed = sending.pass_by(candidate, began, &cause, &gateway.metrics);
                    passed.map_err(|error| ctx.fail(error))?;
                    continue;
                }
            }
        }
        return Ok(candidate);
    }
}
