//! HTTP without a connection: heads, framing, lengths, media types, and the memory of bodies.

pub(super) mod error;
pub(super) mod length;
pub(super) mod framing;
pub(super) mod chunk_scan;
pub(super) mod head;
pub(super) mod response_framing;
pub(super) mod cors;
pub(super) mod reused_timer;
pub(super) mod shared_read;
pub(super) mod offload;
pub(super) mod memory;
