//! Calls to upstreams.
//!
//! | File | What |
//! |---|---|
//! | `targets` | the one loop over targets, and what follows from a try |
//! | `failure` | how calls fail, and the table of what follows |
//! | `refusal` | what the body of a refusal says of that |
//! | `sending` | a request while targets are tried |
//! | `first_event` | what the beginning of a relayed answer's body shows |
//! | `forward` | asks for an answer that is passed on as it comes |
//! | `collect` | asks for an answer that is put together |
//! | `submit` | asks for a task; `repeat` knows submits that are made again, `task_record` what is on disk |
//! | `own_call`, `post` | what the last two share: what calls come to, and how they are made |
//! | `upstream` | one call over HTTP/1.1, and the connections that are kept |
//! | `connectors` | where connections come from |
//! | `peer` | what customers read of failures |
//! | `slots` | how many there may be at one time, in all and for one account |
//! | `orphan` | answers that are read on although nobody waits for them |
//! | `headers` | what of a request's headers goes upstream |
//! | `free` | limits of calls that cost nothing |
//! | `count` | providers' counters of tokens that are asked about a prompt |
//! | `health` | upstreams that are asked how they are |

pub(super) mod targets;
pub(super) mod failure;
pub(super) mod refusal;
pub(super) mod sending;
pub(crate) mod slots;
pub(super) mod headers;
pub(super) mod peer;
pub(super) mod own_call;
pub(super) mod post;
pub(super) mod first_event;
pub(super) mod forward;
pub(super) mod upstream;
pub(super) mod connectors;
pub(super) mod orphan;
pub(super) mod collect;
pub(super) mod submit;
pub(super) mod repeat;
pub(super) mod task_record;
pub(super) mod free;
pub(super) mod count;
pub(super) mod health;

use pingora::Result;
use pingora_proxy::Session;

use crate::gateway::exchange::Exchange;
use crate::gateway::proxy::Gateway;
use crate::protocols::Delivery;

/// Asks upstreams for a paid request, and answers it.
///
/// # Errors
/// What `fail_to_proxy` is to tell the customer, or the log.
pub(super) async fn answer(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
) -> Result<()> {
    let sending = exchange.sending()?;
    if sending.admitted.call.is_local() {
        let local_answer = sending.admitted.call.local_answer();
        exchange.local_answer = local_answer;
        return Err(exchange.fail(peer::unavailable()));
    }
    // Each is large, and a request needs one of them only.
    let answered = match exchange.delivery() {
        // A task is not cut by the end of the process.
        Delivery::Submit => {
            return Box::pin(submit::answer(gateway, session, exchange)).await;
        }
        Delivery::Collect => {
            let answered = Box::pin(collect::answer(gateway, session, exchange));
            gateway.deadline.or_done(answered).await
        }
        Delivery::Relay | Delivery::Stream => {
            // A connection over HTTP/1.1 says itself that the deadline is over.
            let is_told = session.as_http2().is_none() && exchange.keepalive_interval().is_none();
            let answered = Box::pin(forward::answer(gateway, session, exchange));
            if is_told {
                return answered.await;
            }
            gateway.deadline.or_done(answered).await
        }
    };
    answered.unwrap_or_else(|| Err(exchange.stopped(session)))
}
