//! Calls to upstreams.
//!
//! | File | What |
//! |---|---|
//! | `try_result` | the result of a try of one target, and the decision to go on or to end |
//! | `forward`, `first_event` | asks for an answer that is passed on as it comes, until its body begins |
//! | `relay` | passes that answer on |
//! | `collect` | asks for an answer that is put together |
//! | `submit` | asks for a task; `repeated_submit` knows submits that are made again, `task_record` what is on disk |
//! | `whole_call`, `post` | what the last two share: what calls come to, and how they are made |
//! | `free_calls` | limits of calls that cost nothing |
//! | `token_count` | providers' counters of tokens that are asked about a prompt |

pub(super) mod try_result;
pub(super) mod whole_call;
pub(super) mod post;
pub(super) mod first_event;
pub(super) mod forward;
pub(super) mod relay;
pub(super) mod collect;
pub(super) mod submit;
pub(super) mod repeated_submit;
pub(super) mod task_record;
pub(super) mod free_calls;
pub(super) mod token_count;

use pingora::Result;
use pingora_proxy::Session;

use crate::gateway::request::context::RequestContext;
use crate::gateway::request::services::Gateway;
use crate::gateway::request::upstream_error;
use crate::protocols::Delivery;

/// Sends a paid request to upstreams and answers it.
///
/// # Errors
/// What `fail_to_proxy` is to tell the customer, or the log.
pub(super) async fn answer(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &mut RequestContext,
) -> Result<()> {
    let sending = ctx.sending()?;
    if sending.admitted.call.is_local() {
        let local_answer = sending.admitted.call.local_answer();
        ctx.response.local_answer = local_answer;
        return Err(ctx.fail(upstream_error::unavailable()));
    }
    // Boxed: each is large, and a request needs one of them only.
    let answered = match ctx.delivery() {
        // A task is not cut by the end of the process.
        Delivery::Submit => {
            return Box::pin(submit::answer(gateway, session, ctx)).await;
        }
        Delivery::Collect => {
            let answered = Box::pin(collect::answer(gateway, session, ctx));
            gateway.deadline.or_done(answered).await
        }
        Delivery::Relay | Delivery::Stream => {
            // A connection over HTTP/1.1 says itself that the deadline is over.
            let handles_deadline =
                session.as_http2().is_none() && ctx.keepalive_interval().is_none();
            let answered = Box::pin(forward::answer(gateway, session, ctx));
            if handles_deadline {
                return answered.await;
            }
            gateway.deadline.or_done(answered).await
        }
    };
    answered.unwrap_or_else(|| Err(ctx.stopped(session)))
}
