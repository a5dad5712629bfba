//! The models that customers can call, and which of them a name means.

use std::sync::Arc;
use std::time::Duration;

use super::{OwnPricing, PassedHeaders, Pricing, Snapshot, Upstream};
use tollgate_money::price::PriceList;
use tollgate_options::holds::HoldOverrides;
use tollgate_protocols::Operation;
use tollgate_protocols::limits::ModelLimits;
use tollgate_types::limit::Rates;

/// The longest name of anything that can be named.
pub(crate) const NAME_BYTES_MAX: usize = 128;
/// What names of models have beside ASCII letters and digits.
pub(crate) const MODEL_PUNCTUATION: &str = "-_.:/@";

/// A model that customers can name.
#[derive(Debug)]
pub struct Model {
    /// The public id; shared, because every hold and record of a request names it.
    pub id: Arc<str>,
    /// What it can be asked to do.
    pub operations: Vec<Operation>,
    /// What it can be asked to do beside these, or what none of its targets does by itself: requests
    /// of these operations are translated.
    pub translated: Vec<Operation>,
    /// Where it is served, best first: ascending `priority`, then the order of `models.yaml`.
    pub targets: Vec<Arc<Target>>,
    /// The ids of models that serve a request when none of the targets can, in order. A model whose
    /// upstreams are all off is among them, and is not listed.
    pub fallbacks: Vec<Arc<str>>,
    /// What a unit costs; all zero only where the file says `free: true`.
    pub prices: Arc<Pricing>,
    /// What customers pay in its place that have rules of their own.
    pub own_prices: OwnPricing,
    /// What one request can use at most.
    pub limits: ModelLimits,
    /// How much all customers together may use it.
    pub rates: Rates,
    /// How requests to it are held that do not fit their accounts, where that differs from the rules for all.
    pub holds: HoldOverrides,
    /// How much is read of an answer that nobody waits for any more.
    pub on_disconnect: OnDisconnect,
    /// `owned_by` in model lists.
    pub owned_by: String,
}

/// How much is read of an answer that nobody waits for any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDisconnect {
    /// For how long, from when the customer left.
    pub time: Duration,
    /// How many bytes are read at most.
    pub bytes: u64,
}

/// One place where a model is served.
#[derive(Debug)]
pub struct Target {
    /// Its number in this configuration.
    pub index: usize,
    /// The provider that serves the model.
    pub upstream: Arc<Upstream>,
    /// The provider's name for the model; `None` for the name that the customer used, of which only
    /// a pattern says that it is the provider's.
    pub model: Option<String>,
    /// Lower is tried first.
    pub priority: u32,
    /// The share among targets of one priority.
    pub weight: u32,
    /// What the operator pays there; `None` where nobody knows.
    pub cost: Option<TargetCost>,
    /// Headers of a request that are sent on to it: the model's and the upstream's.
    pub pass_headers: Arc<PassedHeaders>,
}

/// What the operator pays at a target.
#[derive(Clone, Debug)]
pub enum TargetCost {
    /// What was used, at these prices.
    Prices(PriceList),
    /// What the upstream says with each answer.
    Reported,
}

impl Snapshot {
    /// The model that customers call by this name: the one with this id, or the one whose pattern
    /// fits best.
    #[must_use]
    pub fn model(&self, name: &str) -> Option<&Arc<Model>> {
        let exact = self.models_by_id.get(name).filter(|model| !model.is_wildcard());
        exact.or_else(|| {
            let punctuation = MODEL_PUNCTUATION.as_bytes();
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || punctuation.contains(&byte);
            let fits = name.len() <= NAME_BYTES_MAX && name.bytes().all(is_name);
            let mut wildcards = self.wildcards.iter().filter(|_| fits);
            wildcards.find(|model| name.starts_with(model.literal()))
        })
    }
}

impl Model {
    /// Whether it can be asked for the operation.
    #[must_use]
    pub fn serves(&self, operation: Operation) -> bool {
        self.operations.contains(&operation.granted_by()) || self.is_translated(operation)
    }

    /// All that it can be asked for: what its upstreams speak, then what is translated.
    pub fn served(&self) -> impl Iterator<Item = Operation> {
        let is_new = |operation: &&Operation| !self.operations.contains(operation);
        self.operations.iter().chain(self.translated.iter().filter(is_new)).copied()
    }

    /// Whether requests of the operation are translated for it.
    #[must_use]
    pub fn is_translated(&self, operation: Operation) -> bool {
        self.translated.contains(&operation.granted_by())
    }

    /// Whether its id is a pattern: the beginning of names, and an asterisk.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.id.ends_with('*')
    }

    /// Its id without the asterisk.
    #[must_use]
    pub fn literal(&self) -> &str {
        self.id.strip_suffix('*').unwrap_or(&self.id)
    }
}
