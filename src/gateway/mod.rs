//! The proxy: Pingora's hooks, each a few lines that call the pipeline.
//!
//! The folders are a stack. Each names those below it and none above:
//!
//! | Folder | What |
//! |---|---|
//! | `hooks` | the implementation of `ProxyHttp`, one file a filter |
//! | `dispatch`, `hold` | which service answers; holds for accounts with little money |
//! | `websocket`, `call` | turns over one connection; calls to upstreams |
//! | `local` | answers without an upstream, and services below paths of their own |
//! | `receive`, `answer` | admission and request bodies; response heads, bodies and errors |
//! | `request` | the context of a request, its stages, and the services that all requests share |
//! | `listen`, `upstream` | connections of customers; connections to upstreams |
//! | `wire` | HTTP framing, heads, media types and the memory budget of bodies |

mod wire;
mod upstream;
mod listen;
mod request;
mod answer;
mod receive;
mod local;
mod call;
mod websocket;
mod hold;
mod dispatch;
mod hooks;

pub use listen::certificates::Certificates;
pub use listen::connection::Connections;
pub use listen::deadline::Deadline;
pub use listen::descriptors::Descriptors;
pub use listen::loopback::{LoopbackClient, LoopbackRequest, LoopbackResponse};
pub use listen::origin::Origin;
pub use listen::transport::Transport;
pub use request::hosted::{Downstream, HostedService};
pub use request::services::{Gateway, GatewayParts};
pub use upstream::connectors::Connectors;
pub use upstream::health::check_upstreams;
pub(crate) use wire::length::declared_length;
pub(crate) use wire::memory::gathered::GatheredBody;
pub use wire::memory::service::{Memory, MemoryPart};
