//! Bodies in chunks that customers send are checked while Pingora reads them.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::GatewayError;
use crate::gateway::chunk_scan::ChunkScan;
use crate::gateway::listen::framing::{self, BodyIs};

/// The body that is being read from a connection.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    is_checked: AtomicBool,
    scan: Mutex<ChunkScan>,
}

impl Chunks {
    /// What comes is no body in chunks.
    pub(crate) fn none(&self) {
        self.is_checked.store(false, Ordering::Relaxed);
    }

    /// A head was read that says what its body is; `begun` came with it.
    ///
    /// # Errors
    /// `BadFraming` when what came with it is wrong already.
    pub(crate) fn begin(&self, body: BodyIs, begun: &[u8]) -> Result<(), GatewayError> {
        self.is_checked.store(body == BodyIs::InChunks, Ordering::Relaxed);
        if body != BodyIs::InChunks {
            return Ok(());
        }
        *self.scan.lock() = ChunkScan::default();
        if self.takes(begun) { Ok(()) } else { Err(framing::bad_chunks()) }
    }

    /// Whether a body in chunks is being read.
    pub(crate) fn are_checked(&self) -> bool {
        self.is_checked.load(Ordering::Relaxed)
    }

    /// Whether these bytes may follow.
    pub(crate) fn takes(&self, bytes: &[u8]) -> bool {
        !self.is_checked.load(Ordering::Relaxed) || self.scan.lock().takes(bytes)
    }
}
