//! Admission of requests, and their bodies.

pub(super) mod admission;
pub(super) mod reading;
pub(super) mod body;
