//! Signals that control a running gateway.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Action requested by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessSignal {
    /// SIGTERM: finish the requests in flight, then exit.
    Drain,
    /// SIGINT: exit now.
    Stop,
    /// SIGHUP: reload the configuration.
    Reload,
    /// SIGQUIT: hand the listening sockets and the ledger over to a new process, then exit.
    HandOver,
}

/// Streams of the handled signals.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    quit: Signal,
}

impl Signals {
    /// Register the handlers; must be called inside a runtime.
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Wait for the next signal.
    pub(super) async fn next(&mut self) -> ProcessSignal {
        tokio::select! {
            _ = self.terminate.recv() => ProcessSignal::Drain,
            _ = self.interrupt.recv() => ProcessSignal::Stop,
            _ = self.hang_up.recv() => ProcessSignal::Reload,
            _ = self.quit.recv() => ProcessSignal::HandOver,
        }
    }
}
