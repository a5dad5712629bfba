//! How a gateway goes on until it is told to end, and ends: load balancers first, then new connections, then the requests in flight.

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

/// How often the end of the requests in flight is looked for while draining.
const POLL: Duration = Duration::from_millis(10);
/// For how long no connection must be open before the last has ended: one that has just been accepted
/// counts when its task first runs, which takes a busy machine some milliseconds.
const QUIET: Duration = Duration::from_millis(50);
/// How long customers get to take the last words of a request that the deadline has cut.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);

/// What has to come to an end, and in which time.
pub(super) struct Drain {
    pub(super) readiness: Arc<Readiness>,
    /// Closes the listeners and idle connections.
    pub(super) stop: watch::Sender<bool>,
    /// What accepts customers' connections, and ends when all that were sent to it are let in.
    pub(super) listening: Vec<JoinHandle<()>>,
    /// How many connections of customers are open.
    pub(super) open: Arc<AtomicUsize>,
    pub(super) deadline: Arc<Deadline>,
    pub(super) delay: Duration,
    pub(super) grace: Duration,
    /// What the next process needs; `None` where there cannot be one.
    pub(super) handover: Option<Arc<Handover>>,
}

impl Drain {
    /// Does what signals ask for, until one has ended the gateway. Gives the process that waits for
    /// the end of this one, if there is one.
    pub(super) async fn until_told(
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

    /// The next process, once it has come up and waits. Without one this process goes on.
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

    /// Ends everything in its order; SIGINT ends it at once.
    async fn run(&mut self, delay: Duration, signals: &mut Signals, metrics: &Metrics) {
        self.readiness.set_draining();
        self.deadline.approach();
        if !delay.is_zero() {
            log::info!("draining: requests are taken for another {delay:?}");
            if self.wait(delay, signals, || false).await == Waited::Interrupted {
                return;
            }
        }
        log::info!("draining: {} connections open", self.connections());
        // It keeps the sockets open: who comes after the last that is let in would wait for nobody.
        self.handover = None;
        self.stop.send_replace(true);
        if self.wait(self.grace, signals, self.quiet(metrics)).await == Waited::TimeOut {
            log::warn!("draining: the time is over for {} connections", self.connections());
            self.deadline.end();
            self.wait(LAST_WORDS_TIMEOUT, signals, self.quiet(metrics)).await;
        }
        log::info!("drained: {} connections cut", self.connections());
    }

    /// Customers' connections that are open.
    fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Says whether the last customer has gone and none can come: the listeners are closed, nobody waits
    /// in their queues, no connection has been open for a moment, and no answer is read on for one who
    /// has left.
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
    ) -> Waited {
        let began = Instant::now();
        while !is_done() {
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Waited::TimeOut;
            }
            tokio::select! {
                () = tokio::time::sleep(POLL.min(left)) => {}
                asked = signals.next() => if asked == ProcessSignal::Stop { return Waited::Interrupted },
            }
        }
        Waited::Done
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    Done,
    TimeOut,
    Interrupted,
}
