//! The proxy: Pingora's hooks, each a few lines that call the pipeline.

mod connection;
mod framing;
mod proxy;
mod exchange;
mod receive;
mod local;
mod body;
mod replayed;
mod headers;
mod peer;
mod relay;
mod respond;
mod record;

pub use connection::Connections;
pub use proxy::{Gateway, GatewayParts};
