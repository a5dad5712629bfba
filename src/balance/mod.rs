//! Which target gets a request, and where its upstream is found.

mod order;
mod resolve;

pub use order::order;
pub use resolve::Addresses;
