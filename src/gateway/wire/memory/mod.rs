//! The memory that bodies take: its budget, and what is evicted for others.

pub(crate) mod eviction;
pub(crate) mod budget;
pub(crate) mod held;
pub(crate) mod idle;
pub(crate) mod gathered;
pub(crate) mod service;
