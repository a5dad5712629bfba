//! What goes to the customer: headers, bodies and errors.

pub(super) mod relay;
pub(super) mod array;
pub(super) mod customer;
pub(super) mod refused;
pub(super) mod head;
pub(super) mod headers;
pub(super) mod kind;
pub(super) mod secrets;
pub(super) mod respond;
pub(super) mod envelope;
