//! What the operating system asks of a running gateway.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A request by signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessSignal {
    /// SIGTERM: finish what is in flight, then exit.
    Drain,
    /// SIGINT: the process exits now.
    Stop,
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGQUIT: give the listening sockets and the ledger to a new process, then exit.
    HandOver,
}

/// The signals that are listened to.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    quit: Signal,
}

impl Signals {
    /// Starts to listen; must be called inside a runtime.
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) -> ProcessSignal {
        tokio::select! {
            _ = self.terminate.recv() => ProcessSignal::Drain,
            _ = self.interrupt.recv() => ProcessSignal::Stop,
            _ = self.hang_up.recv() => ProcessSignal::Reload,
            _ = self.quit.recv() => ProcessSignal::HandOver,
        }
    }
}
