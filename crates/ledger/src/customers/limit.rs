//! Rate and spending limits of keys and accounts: set by operators, stored in the journal, read by
//! every request.

use std::num::NonZeroU32;

use crate::memory::{Keys, Ledger};
use crate::records::key::Key;
use crate::records::key_limits::KeyLimits;
use crate::rules::core::AccountState;
use tollgate_money::money::Nanousd;
use tollgate_types::ids::{AccountId, KeyId};
use tollgate_types::limit::Rates;

/// Changes to rate limits: `None` keeps a limit, `Some(None)` removes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RatesPatch {
    /// Another number of requests a minute.
    pub requests_per_minute: Option<Option<NonZeroU32>>,
    /// Another number of tokens a minute.
    pub tokens_per_minute: Option<Option<NonZeroU32>>,
    /// New limit of concurrent requests.
    pub concurrent_requests: Option<Option<NonZeroU32>>,
}

impl RatesPatch {
    fn of(&self, rates: Rates) -> Rates {
        Rates {
            requests_per_minute: self.requests_per_minute.unwrap_or(rates.requests_per_minute),
            tokens_per_minute: self.tokens_per_minute.unwrap_or(rates.tokens_per_minute),
            concurrent_requests: self.concurrent_requests.unwrap_or(rates.concurrent_requests),
        }
    }
}

/// Changes to the limits of a key: `None` keeps a limit, `Some(None)` removes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyLimitsPatch {
    /// Limits of requests and tokens a minute.
    pub rates: RatesPatch,
    /// Another amount a day; zero or more.
    pub spend_per_day: Option<Option<Nanousd>>,
    /// Another amount a month; zero or more.
    pub spend_per_month: Option<Option<Nanousd>>,
}

impl KeyLimitsPatch {
    /// These changes to `limits`.
    #[must_use]
    pub fn of(&self, limits: KeyLimits) -> KeyLimits {
        KeyLimits {
            rates: self.rates.of(limits.rates),
            spend_per_day: self.spend_per_day.unwrap_or(limits.spend_per_day),
            spend_per_month: self.spend_per_month.unwrap_or(limits.spend_per_month),
        }
    }
}

impl Keys {
    /// Restores limits of an account and its keys, its prices, and its suspension from the account's state.
    pub(crate) fn restore_limits(&mut self, state: &AccountState) {
        let limited =
            state.spendings.iter().filter(|(_, spending)| spending.limits != KeyLimits::default());
        self.limits.extend(limited.map(|(key, spending)| (key, spending.limits)));
        if !state.rates.are_none() {
            self.rates.insert(state.account.id, state.rates);
        }
        if let Some(prices) = &state.customers.prices {
            self.price(state.account.id, prices);
        }
        if let Some(holds) = &state.customers.holds {
            self.hold_by(state.account.id, holds);
        }
        if state.account.suspended {
            self.suspended.insert(state.account.id);
        }
    }

    pub(crate) fn limit(&mut self, key: KeyId, limits: KeyLimits) {
        if limits == KeyLimits::default() {
            // Absent rather than empty: most keys have no limits, and requests look here each time.
            self.limits.remove(&key);
        } else {
            self.limits.insert(key, limits);
        }
    }
}

impl Ledger {
    /// Limits of a key.
    #[must_use]
    pub fn key_limits(&self, key: KeyId) -> KeyLimits {
        self.keys.read().limits.get(&key).copied().unwrap_or_default()
    }

    /// Rate limits of an account.
    #[must_use]
    pub fn account_rates(&self, account: AccountId) -> Rates {
        self.keys.read().rates.get(&account).copied().unwrap_or_default()
    }

    /// Rate limits of a key and of its account.
    #[must_use]
    pub fn rates(&self, key: &Key) -> (Rates, Rates) {
        let keys = self.keys.read();
        let of_key = keys.limits.get(&key.id).map(|limits| limits.rates);
        let of_account = keys.rates.get(&key.account).copied();
        (of_key.unwrap_or_default(), of_account.unwrap_or_default())
    }

    /// Rate limits of an account after a change; `None` if nothing changes.
    pub(crate) fn rates_with(&self, account: AccountId, patch: &RatesPatch) -> Option<Rates> {
        (*patch != RatesPatch::default()).then(|| patch.of(self.account_rates(account)))
    }
}
