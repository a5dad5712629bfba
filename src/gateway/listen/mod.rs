//! Connections of customers: which are let in, and how their bytes become requests.

pub(super) mod stream_delegation;
pub(super) mod deadline;
pub(super) mod origin;
pub(super) mod request_slots;
pub(super) mod bounds;
pub(super) mod connection;
pub(super) mod connection_table;
pub(super) mod descriptors;
pub(super) mod transport;
pub(super) mod proxy_protocol;
pub(super) mod certificates;
pub(super) mod http1;
pub(super) mod http2;
pub(super) mod session_parts;
pub(super) mod driver;
pub(super) mod loopback;
