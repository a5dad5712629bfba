//! The proxy: Pingora's hooks, each a few lines that call the pipeline.

mod proxy;
mod exchange;
mod framing;
mod body;
mod replayed;
mod headers;
mod peer;
mod respond;
mod local;
mod receive;
mod relay;

pub use proxy::{Gateway, GatewayParts};
