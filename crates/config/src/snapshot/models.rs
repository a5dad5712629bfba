//! The models that customers can call, and which of them a name means.

use std::sync::Arc;
use std::time::Duration;

use super::{OwnPricing, PassedHeaders, Pricing, Snapshot, Upstream};
use tollgate_money::price::PriceList;
use tollgate_options::holds::HoldOverrides;
use tollgate_protocols::Operation;
use tollgate_protocols::limits::ModelLimits;
use tollgate_types::limit::Rates;

/// Maximum length of a name, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 128;
/// Permitted punctuation in model names.
pub(crate) const MODEL_PUNCTUATION: &str = "-_.:/@";

/// A model that customers can name.
#[derive(Debug)]
pub struct Model {
    /// The public id; shared, because every hold and record of a request names it.
    pub id: Arc<str>,
    /// Operations that the model's targets serve natively.
    pub operations: Vec<Operation>,
    /// Operations that are served only by translation.
    pub translated: Vec<Operation>,
    /// Targets, best first: ascending `priority`, then the order of `models.yaml`.
    pub targets: Vec<Arc<Target>>,
    /// The ids of models that serve a request when none of the targets can, in order. A model whose
    /// upstreams are all off is among them, and is not listed.
    pub fallbacks: Vec<Arc<str>>,
    /// Price list; all zero only with `free: true`.
    pub prices: Arc<Pricing>,
    /// Prices of customers with rules of their own.
    pub own_prices: OwnPricing,
    /// Limits of one request.
    pub limits: ModelLimits,
    /// Rate limits of all customers together.
    pub rates: Rates,
    /// Overrides of the rules for holds.
    pub holds: HoldOverrides,
    /// Reading of answers after the customer has disconnected.
    pub on_disconnect: OnDisconnect,
    /// `owned_by` in model lists.
    pub owned_by: String,
}

/// Reading of answers after the customer has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDisconnect {
    /// Maximum time after the client disconnected.
    pub time: Duration,
    /// Maximum number of bytes to read.
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
    /// Cost for the operator; `None` if unknown.
    pub cost: Option<TargetCost>,
    /// Additional request headers that are forwarded, from the model and the upstream.
    pub pass_headers: Arc<PassedHeaders>,
}

/// Cost of a target for the operator.
#[derive(Clone, Debug)]
pub enum TargetCost {
    /// Usage at these prices.
    Prices(PriceList),
    /// The cost that the upstream reports with each answer.
    Reported,
}

impl Snapshot {
    /// The model for a requested name: the one with this id, or the one with the best matching pattern.
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
    /// True if the model serves the operation, by translation or not.
    #[must_use]
    pub fn serves(&self, operation: Operation) -> bool {
        self.operations.contains(&operation.granted_by()) || self.is_translated(operation)
    }

    /// All operations of the model: native ones, then translated ones.
    pub fn served(&self) -> impl Iterator<Item = Operation> {
        let is_new = |operation: &&Operation| !self.operations.contains(operation);
        self.operations.iter().chain(self.translated.iter().filter(is_new)).copied()
    }

    /// True if requests of the operation are translated for it.
    #[must_use]
    pub fn is_translated(&self, operation: Operation) -> bool {
        self.translated.contains(&operation.granted_by())
    }

    /// True if its id is a pattern: the beginning of names, and an asterisk.
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
