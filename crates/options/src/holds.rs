//! Hold rules for requests that may cost more than the account has: the means to try, in order.

use std::time::Duration;

use tollgate_types::words::words;

words! {
    /// A way to serve a request that exceeds the account's balance.
    Means {
        /// Spend the unused part of the account's credit line.
        Credit = "credit",
        /// Ask the provider how many tokens the prompt has.
        Count = "count",
        /// Lower the output limit of the request.
        Clamp = "clamp",
        /// Hold a slice, and extend it while the answer streams.
        Rolling = "rolling",
    }
}

/// The rules by which a request is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRules {
    /// The means, in the order in which they are tried; one that is left out is never used.
    pub means: Vec<Means>,
    /// Lowest output limit, in tokens, to which a request may be clamped.
    pub output_floor: u64,
    /// Output, in tokens, that a rolling hold covers at first, and is extended by at least.
    pub slice: u64,
    /// The longest time that a request waits for money of the calls before it; zero for no waiting.
    pub wait: Duration,
    /// The longest time that a count of tokens may take.
    pub count_timeout: Duration,
}

impl Default for HoldRules {
    fn default() -> Self {
        Self {
            means: Means::ALL.to_vec(),
            output_floor: 4_096,
            slice: 4_096,
            wait: Duration::ZERO,
            count_timeout: Duration::from_secs(2),
        }
    }
}

/// Rules of one model or account, which replace the configured ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldOverrides {
    /// The means of this model or account, in order.
    pub means: Option<Vec<Means>>,
    /// The lowest output limit of this model or account.
    pub output_floor: Option<u64>,
    /// The first slice of this model or account.
    pub slice: Option<u64>,
    /// The longest wait of this model or account.
    pub wait: Option<Duration>,
}

impl HoldOverrides {
    /// True where nothing is overridden.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The words of the means, as documents and files have them.
    #[must_use]
    pub fn means_words(&self) -> Option<Vec<&'static str>> {
        let means = self.means.as_ref()?;
        Some(means.iter().map(|one| one.as_str()).collect())
    }

    /// The longest wait in milliseconds, as documents and files have it.
    #[must_use]
    pub fn wait_ms(&self) -> Option<u64> {
        self.wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
    }
}

impl HoldRules {
    /// These rules with what `overrides` says in their place.
    #[must_use]
    pub fn with(&self, overrides: &HoldOverrides) -> Self {
        Self {
            means: overrides.means.clone().unwrap_or_else(|| self.means.clone()),
            output_floor: overrides.output_floor.unwrap_or(self.output_floor),
            slice: overrides.slice.unwrap_or(self.slice),
            wait: overrides.wait.unwrap_or(self.wait),
            count_timeout: self.count_timeout,
        }
    }

    /// True if a request may be served by this means.
    #[must_use]
    pub fn allows(&self, means: Means) -> bool {
        self.means.contains(&means)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_overrides_field_by_field() {
        let wait = Duration::from_secs(30);
        let account = HoldOverrides { wait: Some(wait), ..HoldOverrides::default() };
        let model = HoldOverrides { means: Some(vec![Means::Clamp]), ..HoldOverrides::default() };
        let rules = HoldRules::default().with(&model).with(&account);
        assert_eq!((rules.wait, rules.output_floor), (wait, 4_096));
        assert!(rules.allows(Means::Clamp) && !rules.allows(Means::Count));
        assert!(!account.is_empty() && HoldOverrides::default().is_empty());
    }
}
