//! Responses to clients: heads, errors, refusals of upstreams, and the watch on the client's connection.

pub(super) mod respond;
pub(super) mod customer;
pub(super) mod refused;
