//! What goes to the customer: headers, bodies and errors.

pub(super) mod respond;
pub(super) mod customer;
pub(super) mod refused;
