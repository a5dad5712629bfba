//! The proxy: Pingora's hooks, each a few lines that call the pipeline.

mod deadline;
mod overload;
mod connection;
mod transport;
mod proxy_protocol;
mod certificates;
mod http2;
mod framing;
mod proxy;
mod exchange;
mod reading;
mod receive;
mod local;
mod usage;
mod body;
mod replayed;
mod headers;
mod hosted;
mod inward;
mod client;
mod peer;
mod relay;
mod failed;
mod collect;
mod kept_alive;
mod submit;
mod respond;
mod envelope;
mod cors;
mod health;
mod record;

pub use certificates::Certificates;
pub use connection::Connections;
pub use deadline::Deadline;
pub use health::check_upstreams;
pub use hosted::{Downstream, Hosted};
pub use inward::{Inner, Inward, Reply};
pub use proxy::{Gateway, GatewayParts};
pub use transport::Transport;

/// What the log may say of an error while reading or writing: not its context, which can quote the
/// bytes at hand.
fn told(error: &pingora::Error) -> String {
    format!("{} ({})", error.etype().as_str(), error.esource().as_str())
}
