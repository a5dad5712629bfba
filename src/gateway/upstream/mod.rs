//! Connections to upstreams: where they come from, one call over HTTP/1.1, and what upstreams must not
//! repeat to customers.

pub(super) mod secrets;
pub(super) mod request_head;
pub(super) mod response_headers;
pub(super) mod connectors;
pub(super) mod client;
pub(super) mod health;
pub(super) mod count_cache;
pub(super) mod token_counts;
