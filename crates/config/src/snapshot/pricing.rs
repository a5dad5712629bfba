//! Prices by which calls of a model are charged: those of `models.yaml`, and those of customers that pay
//! something else.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tollgate_money::price::{PriceList, PriceTerms, PriceVersion, Unit};

/// Source of a price that no customer's rule sets.
pub const LIST: &str = "models.yaml";

/// Prices by which calls of a model are charged.
#[derive(Debug)]
pub struct Pricing {
    /// Prices of the model, by unit.
    pub list: Arc<PriceList>,
    /// Source of the prices: [`LIST`], or a customer's rule.
    pub source: String,
    /// The model as customers read it in lists.
    pub listed: ListedModel,
    version: OnceLock<PriceVersion>,
    is_noted: AtomicBool,
}

impl Pricing {
    /// The prices of `models.yaml`.
    #[must_use]
    pub fn of_list(list: PriceList) -> Self {
        Self::new(list, LIST.to_owned())
    }

    fn new(list: PriceList, source: String) -> Self {
        Self {
            list: Arc::new(list),
            source,
            listed: ListedModel::default(),
            version: OnceLock::new(),
            is_noted: AtomicBool::new(false),
        }
    }

    /// Version of the prices, a hash of the text that `write` creates on first use.
    pub fn version(&self, write: impl FnOnce() -> String) -> PriceVersion {
        *self.version.get_or_init(|| PriceVersion::from_text(&write()))
    }

    /// True if the ledger has recorded this version of the prices.
    #[must_use]
    pub fn is_noted(&self) -> bool {
        self.is_noted.load(Ordering::Acquire)
    }

    /// Marks the price as recorded in the ledger.
    pub fn set_noted(&self) {
        self.is_noted.store(true, Ordering::Release);
    }
}

/// Ways to pay for one model that are kept: rules come and go, and the configuration may stay for months.
const CACHED_MAX: usize = 256;

/// Prices of customers with rules, cached while the configuration is in force.
#[derive(Debug, Default)]
pub struct OwnPricing(Mutex<HashMap<(String, PriceTerms), Arc<Pricing>>>);

impl OwnPricing {
    /// Applies `terms` of this source to the list, which sells these units.
    #[must_use]
    pub fn by_terms(
        &self,
        source: String,
        terms: &PriceTerms,
        list: &PriceList,
        sold: &[Unit],
    ) -> Arc<Pricing> {
        let made =
            |source: &str| Arc::new(Pricing::new(terms.apply(list, sold), source.to_owned()));
        let mut cache = self.0.lock();
        let key = (source, terms.clone());
        if let Some(pricing) = cache.get(&key) {
            return Arc::clone(pricing);
        }
        let pricing = made(&key.0);
        if cache.len() >= CACHED_MAX {
            // What is under way has its own; what is paid now is made once more.
            cache.clear();
        }
        cache.insert(key, Arc::clone(&pricing));
        pricing
    }
}

/// The model as customers read it, written on first use: a list has hundreds of models.
#[derive(Debug, Default)]
pub struct ListedModel {
    openai: OnceLock<Box<str>>,
    anthropic: OnceLock<Box<str>>,
}

impl ListedModel {
    /// The prices in OpenAI's format, created by `write` on first use.
    pub fn as_openai(&self, write: impl FnOnce() -> String) -> &str {
        self.openai.get_or_init(|| write().into())
    }

    /// The prices in Anthropic's format, created by `write` on first use.
    pub fn as_anthropic(&self, write: impl FnOnce() -> String) -> &str {
        self.anthropic.get_or_init(|| write().into())
    }
}
