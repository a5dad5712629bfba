//! Record of a finished request, shared by metrics and the access log.

use std::net::IpAddr;
use std::time::Duration;

use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_protocols::Operation;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, KeyId, RequestId, TaskId};

/// A finished request, whatever its outcome. It contains no secrets: no key, no prompt, no header value.
#[derive(Clone, Debug)]
pub struct FinishedRequest<'a> {
    /// The id that the customer got in `x-request-id`.
    pub request_id: RequestId,
    /// The account that pays; `None` when the key was not recognised.
    pub account_id: Option<AccountId>,
    /// The id of the key (never the key); `None` when it was not recognised.
    pub key_id: Option<KeyId>,
    /// The address that the request came from.
    pub client: Option<IpAddr>,
    /// The request method as received.
    pub method: &'a str,
    /// The configured path that matched; empty when none did.
    pub route: &'a str,
    /// Operation; `None` for paths that are not an operation.
    pub operation: Option<Operation>,
    /// The id of the *configured* model that answered or was tried last; empty before one was found.
    /// Never what the customer typed: it is a metric's label.
    pub model: &'a str,
    /// The id of the model that the request names, where a fallback answered or was tried last.
    pub requested_model: Option<&'a str>,
    /// The name of the upstream that answered or was tried last; empty when none was.
    pub upstream: &'a str,
    /// Request id of the upstream, where it has failed or refused.
    pub upstream_request_id: Option<&'a str>,
    /// The status sent to the customer; 0 when none was.
    pub status: u16,
    /// `error.code` as sent, or the word for a failure after the first byte; empty when all went
    /// well. Static, because it is a metric's label: an upstream's own code must not get here.
    pub error_code: &'static str,
    /// True if the answer was a stream of events.
    pub streamed: bool,
    /// Bytes of the request body that were read.
    pub bytes_in: u64,
    /// Bytes of the response body that were sent.
    pub bytes_out: u64,
    /// Time of its end.
    pub ended_at: UnixMs,
    /// From the request's header to the end.
    pub duration: Duration,
    /// From the request's header to the first byte of the answer; `None` when none was sent.
    pub ttfb: Option<Duration>,
    /// Settlement; `None` when nothing was ever held.
    pub settled: Option<RequestSettlement>,
    /// The amount that was held for it at its end; zero when nothing was charged.
    pub held: Nanousd,
    /// The output limit, in tokens for each choice, to which the request was lowered so that its account
    /// could pay for it.
    pub max_tokens_clamped: Option<u64>,
    /// Task started by the request.
    pub task_id: Option<TaskId>,
    /// The customer's own trace, as its `traceparent` header named it.
    pub traceparent: Option<&'a str>,
}

/// Settlement of a request's hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSettlement {
    /// Billed usage.
    pub usage: Usage,
    /// Source of the usage figures.
    pub source: UsageSource,
    /// Charge to the customer.
    pub cost: Nanousd,
    /// Cost beyond the account's balance, owed by the customer.
    pub owed: Nanousd,
}

/// A finished task.
#[derive(Clone, Debug)]
pub struct TaskEnded<'a> {
    /// The gateway's id of the task.
    pub task_id: TaskId,
    /// The account that pays.
    pub account_id: AccountId,
    /// Key of the submit.
    pub key_id: KeyId,
    /// The id of the configured model.
    pub model: &'a str,
    /// The name of the upstream that had it.
    pub upstream: &'a str,
    /// Outcome: a word of [`TaskState`](tollgate_protocols::task::TaskState).
    pub state: &'static str,
    /// From its submit to its end.
    pub duration: Duration,
    /// Settlement; `None` when the hold was released.
    pub settled: Option<RequestSettlement>,
    /// Amount of the hold.
    pub held: Nanousd,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A chat that was answered and charged.
    pub(crate) fn finished() -> FinishedRequest<'static> {
        FinishedRequest {
            request_id: RequestId::from_number(1),
            account_id: None,
            key_id: None,
            client: None,
            method: "POST",
            route: "/v1/chat/completions",
            operation: None,
            model: "m",
            requested_model: None,
            upstream: "u",
            upstream_request_id: None,
            status: 200,
            error_code: "",
            streamed: false,
            bytes_in: 0,
            bytes_out: 0,
            ended_at: UnixMs(1_769_860_800_000),
            duration: Duration::from_millis(30),
            ttfb: Some(Duration::from_millis(7)),
            settled: Some(RequestSettlement {
                usage: Usage {
                    input_tokens: 1,
                    cache_read_tokens: 20,
                    cache_write_tokens: 300,
                    cache_write_1h_tokens: 4_000,
                    output_tokens: 50_000,
                    ..Usage::default()
                },
                source: UsageSource::Upstream,
                cost: Nanousd::new(1_250_000_000),
                owed: Nanousd::ZERO,
            }),
            held: Nanousd::new(10_000_000_000),
            max_tokens_clamped: None,
            task_id: None,
            traceparent: None,
        }
    }
}
