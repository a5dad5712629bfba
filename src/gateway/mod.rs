//! The proxy: Pingora's hooks, each a few lines that call the pipeline.
//!
//! | Folder | What |
//! |---|---|
//! | `listen` | connections of customers: who gets one, how bytes become requests |
//! | `receive` | from a request's header to a paid request |
//! | `local` | what is answered without an upstream, and services below paths of their own |
//! | `call` | what asks upstreams |
//! | `answer` | what goes to the customer: headers, bodies, errors |
//! | `websocket` | turns over one connection, each of which is a request of its own |

mod chunk_scan;
mod patience;
mod listen;
mod receive;
mod local;
mod call;
mod answer;
mod websocket;
mod proxy;
mod exchange;
mod record;

pub use call::connectors::Connectors;
pub use call::health::check_upstreams;
pub use listen::certificates::Certificates;
pub use listen::connection::Connections;
pub use listen::deadline::Deadline;
pub use listen::descriptors::Descriptors;
pub use listen::origin::Origin;
pub use listen::transport::Transport;
pub use local::hosted::{Downstream, Hosted};
pub use local::inward::{Inner, Inward, Reply};
pub use proxy::{Gateway, GatewayParts};
pub(crate) use receive::body::declared_length;
pub(crate) use receive::gathered::GatheredBody;
pub use receive::memory::{Memory, MemoryPart};

use crate::forwarded as client;

/// What the log may say of an error while reading or writing: not its context, which can quote the
/// bytes at hand.
fn describe_error(error: &pingora::Error) -> String {
    format!("{} ({})", error.etype().as_str(), error.esource().as_str())
}
