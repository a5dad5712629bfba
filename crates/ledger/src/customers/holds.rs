//! The hold rules of accounts, in the place of those for all.

use std::sync::Arc;
use std::time::Duration;

use tollgate_options::holds::{HoldOverrides, Means};

use crate::memory::{Keys, Ledger};
use crate::records::error::LedgerError;
use tollgate_types::ids::AccountId;

/// The longest time that an account's calls may wait for money: longer than clients wait for an answer.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Changes to hold rules; `None` leaves one as it is, `Some(None)` lets the rule for all count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldsPatch {
    /// Other means, in the order in which they are tried.
    pub means: Option<Option<Vec<Means>>>,
    /// Another lowest output limit, in tokens.
    pub output_floor: Option<Option<u64>>,
    /// Another first slice, in tokens.
    pub slice: Option<Option<u64>>,
    /// Another longest wait for money of earlier calls.
    pub wait: Option<Option<Duration>>,
}

impl HoldsPatch {
    /// These changes to `holds`.
    #[must_use]
    pub fn apply_to(&self, holds: &HoldOverrides) -> HoldOverrides {
        HoldOverrides {
            means: self.means.clone().unwrap_or_else(|| holds.means.clone()),
            output_floor: self.output_floor.unwrap_or(holds.output_floor),
            slice: self.slice.unwrap_or(holds.slice),
            wait: self.wait.unwrap_or(holds.wait),
        }
    }

    /// Refuses rules that no request could be held by.
    pub(crate) fn check(&self) -> Result<(), LedgerError> {
        let means = self.means.iter().flatten().flatten();
        let (count, mut distinct) = (means.clone().count(), means.collect::<Vec<_>>());
        distinct.sort_by_key(|means| means.as_str());
        distinct.dedup();
        if distinct.len() != count {
            return Err(LedgerError::Invalid("each of the means can be named once"));
        }
        if self.output_floor == Some(Some(0)) || self.slice == Some(Some(0)) {
            return Err(LedgerError::Invalid("output_floor and slice are 1 or more"));
        }
        if self.wait.flatten().is_some_and(|wait| wait > WAIT_MAX) {
            return Err(LedgerError::Invalid("a wait is ten minutes at most"));
        }
        Ok(())
    }
}

impl Keys {
    /// Sets the hold rules of an account.
    pub(crate) fn hold_by(&mut self, account: AccountId, holds: &Arc<HoldOverrides>) {
        if holds.is_empty() {
            self.holds.remove(&account);
        } else {
            self.holds.insert(account, Arc::clone(holds));
        }
    }
}

impl Ledger {
    /// Hold rules of the account that replace the configured ones; `None` without any.
    #[must_use]
    pub fn hold_overrides(&self, account: AccountId) -> Option<Arc<HoldOverrides>> {
        let keys = self.keys.read();
        if keys.holds.is_empty() {
            return None;
        }
        keys.holds.get(&account).cloned()
    }

    /// The hold rules of an account after a change; `None` where nothing changes.
    pub(crate) fn holds_with(
        &self,
        account: AccountId,
        patch: &HoldsPatch,
    ) -> Option<Arc<HoldOverrides>> {
        let before = self.hold_overrides(account).unwrap_or_default();
        let after = patch.apply_to(&before);
        (after != *before).then(|| Arc::new(after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_no_request_could_follow_are_refused() {
        let good = HoldsPatch {
            means: Some(Some(vec![Means::Rolling, Means::Credit])),
            output_floor: Some(Some(1)),
            slice: Some(None),
            wait: Some(Some(WAIT_MAX)),
        };
        good.check().expect("good rules");
        let twice = vec![Means::Clamp, Means::Count, Means::Clamp];
        for bad in [
            HoldsPatch { means: Some(Some(twice)), ..HoldsPatch::default() },
            HoldsPatch { output_floor: Some(Some(0)), ..HoldsPatch::default() },
            HoldsPatch { slice: Some(Some(0)), ..HoldsPatch::default() },
            HoldsPatch { wait: Some(Some(WAIT_MAX * 2)), ..HoldsPatch::default() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
