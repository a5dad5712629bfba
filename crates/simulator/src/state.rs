//! State shared by all connections of a simulator.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::behaviour::Behaviour;
use super::conversation::ModelScript;
use super::openai::stored::ResponseStore;
use super::recorded::Recorder;
use super::tasks::TaskHistory;

/// State shared by all connections.
#[derive(Debug)]
pub(super) struct SimulatorState {
    pub(super) behaviour: ArcSwap<Behaviour>,
    pub(super) script: ArcSwapOption<ModelScript>,
    pub(super) recorder: Recorder,
    pub(super) tasks: Arc<TaskHistory>,
    pub(super) responses: ResponseStore,
    pub(super) in_flight: Arc<AtomicUsize>,
    pub(super) answers: AtomicU64,
}

impl SimulatorState {
    pub(super) fn new(behaviour: Behaviour) -> Self {
        Self {
            behaviour: ArcSwap::from_pointee(behaviour),
            script: ArcSwapOption::empty(),
            recorder: Recorder::default(),
            tasks: Arc::default(),
            responses: ResponseStore::default(),
            in_flight: Arc::default(),
            answers: AtomicU64::new(0),
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }
}
