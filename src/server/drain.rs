//! Main loop and graceful shutdown of a gateway: load balancers first, then new connections, then the
//! requests in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::handover::{Handover, Successor};
use super::signals::{ProcessSignal, Signals};
use super::supervisor;
use crate::admin::Readiness;
use crate::config::{ConfigHandle, Trigger};
use crate::gateway::Deadline;
use crate::metrics::Metrics;
use crate::reload;

/// Polling interval for the end of the requests in flight while draining.
const POLL: Duration = Duration::from_millis(10);
/// Quiet time without an open connection that ends the drain: a connection just accepted counts when its
/// task first runs, which can take some milliseconds on a busy machine.
const QUIET: Duration = Duration::from_millis(50);
/// Time for clients to read the last bytes of a request that the deadline has cut.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);

/// Components to shut down, and the time limits.
pub(super) struct Drain {
    pub(super) readiness: Arc<Readiness>,
    /// Closes the listeners and idle connections.
    pub(super) stop: watch::Sender<bool>,
    /// Tasks that accept customers' connections; each ends when its accept queue is empty.
    pub(super) listening: Vec<JoinHandle<()>>,
    /// Number of open customer connections.
    pub(super) open: Arc<AtomicUsize>,
    pub(super) deadline: Arc<Deadline>,
    pub(super) delay: Duration,
    pub(super) grace: Duration,
    /// State for the next process; `None` if handover is not possible.
    pub(super) handover: Option<Arc<Handover>>,
}

impl Drain {
    /// Handle signals until one ends the gateway. Returns the successor process that waits for the end
    /// of this one, if any.
    pub(super) async fn run_until_signal(
        &mut self,
        signals: &mut Signals,
        config: &Arc<ConfigHandle>,
        metrics: &Arc<Metrics>,
    ) -> Option<Successor> {
        loop {
            match signals.next().await {
                ProcessSignal::Reload => {
                    supervisor::reloading();
                    drop(reload::apply(config, metrics, Trigger::Signal).await);
                    supervisor::ready();
                }
                ProcessSignal::Stop => {
                    supervisor::stopping();
                    return None;
                }
                ProcessSignal::Drain => {
                    supervisor::stopping();
                    self.run(self.delay, signals, metrics).await;
                    return None;
                }
                ProcessSignal::HandOver => {
                    let Some(successor) = self.successor().await else { continue };
                    supervisor::handed_over(successor.id());
                    // Load balancers need not look elsewhere: connections wait for the next process.
                    self.run(Duration::ZERO, signals, metrics).await;
                    return Some(successor);
                }
            }
        }
    }

    /// Start the successor process and wait until it is ready. On failure this process continues.
    async fn successor(&self) -> Option<Successor> {
        let Some(handover) = self.handover.clone() else {
            log::warn!("SIGQUIT: this command cannot hand over to another process");
            return None;
        };
        let started = tokio::task::spawn_blocking(move || handover.start()).await;
        match started.map_err(anyhow::Error::from).flatten() {
            Ok(successor) => {
                log::info!("handing over to process {}", successor.id());
                Some(successor)
            }
            Err(error) => {
                log::error!("not handed over, this process goes on: {error:#}");
                None
            }
        }
    }

    /// Shut down in order; SIGINT ends it at once.
    async fn run(&mut self, delay: Duration, signals: &mut Signals, metrics: &Metrics) {
        self.readiness.set_draining();
        self.deadline.approach();
        if !delay.is_zero() {
            log::info!("draining: requests are taken for another {delay:?}");
            if self.wait(delay, signals, || false).await == WaitOutcome::Interrupted {
                return;
            }
        }
        log::info!("draining: {} connections open", self.connections());
        // It keeps the sockets open: who comes after the last that is let in would wait for nobody.
        self.handover = None;
        self.stop.send_replace(true);
        if self.wait(self.grace, signals, self.quiet(metrics)).await == WaitOutcome::TimeOut {
            log::warn!("draining: the time is over for {} connections", self.connections());
            self.deadline.end();
            self.wait(LAST_WORDS_TIMEOUT, signals, self.quiet(metrics)).await;
        }
        log::info!("drained: {} connections cut", self.connections());
    }

    /// Number of open customer connections.
    fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Return a check that is true once no customer is connected and none can connect: listeners closed,
    /// accept queues empty, no open connection for [`QUIET`], no orphaned answer.
    fn quiet(&self, metrics: &Metrics) -> impl FnMut() -> bool {
        let mut quiet_since = None;
        move || {
            let is_busy = self.connections() > 0
                || metrics.orphans() > 0
                || self.listening.iter().any(|listening| !listening.is_finished());
            if is_busy {
                quiet_since = None;
                return false;
            }
            quiet_since.get_or_insert_with(Instant::now).elapsed() >= QUIET
        }
    }

    async fn wait(
        &self,
        time: Duration,
        signals: &mut Signals,
        mut is_done: impl FnMut() -> bool,
    ) -> WaitOutcome {
        let began = Instant::now();
        while !is_done() {
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                return WaitOutcome::TimeOut;
            }
            tokio::select! {
                () = tokio::time::sleep(POLL.min(left)) => {}
                signal = signals.next() => if signal == ProcessSignal::Stop { return WaitOutcome::Interrupted },
            }
        }
        WaitOutcome::Done
    }
}

/// Result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitOutcome {
    Done,
    TimeOut,
    Interrupted,
}
