//! Prices that replace the list: rules of accounts and of groups, and the prices that calls were
//! charged by.

use std::sync::Arc;

use crate::memory::act::{ActorScope, WriteOutcome};
use crate::memory::{Keys, Ledger};
use crate::records::error::LedgerError;
use crate::records::price::{AccountPrices, PriceGroup, PriceNote};
use crate::records::record::Record;
use tollgate_money::price::{PriceRule, PriceTerms, PriceVersion, RULES_MAX, rule_for};
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::AccountId;

/// Maximum number of price groups.
const GROUPS_MAX: usize = 1000;
/// The longest name of a group, in bytes.
const GROUP_BYTES_MAX: usize = 64;

/// Precondition of a write of prices, as HTTP's `If-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfMatch<T> {
    /// Whatever there is.
    Anything,
    /// This, and nothing that has come in its place.
    Exactly(T),
}

impl<T: PartialEq> IfMatch<T> {
    /// Checks the precondition against the current value.
    fn check(&self, now: impl FnOnce() -> T) -> Result<(), LedgerError> {
        match self {
            Self::Exactly(expected) if *expected != now() => Err(LedgerError::Changed),
            _ => Ok(()),
        }
    }
}

/// A price rule that applies to an account and a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedRule {
    /// Group of the rule; `None` for a rule of the account.
    pub group: Option<String>,
    /// The rule that applies.
    pub rule: PriceRule,
}

impl MatchedRule {
    /// Source of a price, as entries and consoles name it.
    #[must_use]
    pub fn source(&self) -> String {
        match &self.group {
            None => format!("account: {}", self.rule.models),
            Some(group) => format!("group {group}: {}", self.rule.models),
        }
    }

    /// Price terms of the rule.
    #[must_use]
    pub fn terms(&self) -> &PriceTerms {
        &self.rule.terms
    }
}

impl Keys {
    /// Sets the prices of an account.
    pub(crate) fn price(&mut self, account: AccountId, prices: &Arc<AccountPrices>) {
        if prices.are_the_list() {
            self.prices.remove(&account);
        } else {
            self.prices.insert(account, Arc::clone(prices));
        }
    }
}

impl Ledger {
    /// The rule for an account's price of `model`, by its requested name, at this time; `None` for the list
    /// price.
    #[must_use]
    pub fn price_rule(&self, account: AccountId, model: &str, at: UnixMs) -> Option<MatchedRule> {
        let keys = self.keys.read();
        if keys.prices.is_empty() {
            return None;
        }
        let prices = keys.prices.get(&account)?;
        if let Some(rule) = rule_for(&prices.rules, model, at) {
            return Some(MatchedRule { group: None, rule: rule.clone() });
        }
        let group = keys.groups.get(prices.group.as_ref()?)?;
        let rule = rule_for(&group.rules, model, at)?;
        Some(MatchedRule { group: Some(group.name.clone()), rule: rule.clone() })
    }

    /// True if an account may pay other prices than the list.
    #[must_use]
    pub fn has_price_rules(&self, account: AccountId) -> bool {
        self.keys.read().prices.contains_key(&account)
    }

    /// Price rules of an account.
    #[must_use]
    pub fn account_prices(&self, account: AccountId) -> Arc<AccountPrices> {
        self.keys.read().prices.get(&account).cloned().unwrap_or_default()
    }

    /// The price groups, by their names.
    #[must_use]
    pub fn price_groups(&self) -> Vec<Arc<PriceGroup>> {
        self.shard(AccountId::OPERATOR).lock().operator.groups.values().cloned().collect()
    }

    /// The price group of this name.
    #[must_use]
    pub fn price_group(&self, name: &str) -> Option<Arc<PriceGroup>> {
        self.keys.read().groups.get(name).cloned()
    }

    /// Writes down that calls are charged by a price from now on, before the first of them. In memory:
    /// it stands in the journal before the hold that follows it.
    pub fn note_price(&self, note: PriceNote) {
        let mut core = self.shard(note.account).lock();
        if core.account(note.account).is_none() {
            return;
        }
        let version = note.version;
        if self.commit(&mut core, Record::PriceNoted(Arc::new(note))).is_err() {
            log::error!("the price {version} came after the ledger had closed");
        }
    }

    /// The prices of this version that calls of this node were charged by, the oldest first: one for each
    /// place that they came from.
    ///
    /// # Errors
    /// [`LedgerError::Store`] and [`LedgerError::Stopped`].
    pub async fn price(&self, version: PriceVersion) -> Result<Vec<PriceNote>, LedgerError> {
        let mut notes = self.query(move |store| store.price(version)).await?;
        notes.sort_by_key(|note| note.at);
        Ok(notes)
    }

    /// All prices that calls of this node were charged at, newest first. A version with several sources is
    /// listed once for each.
    ///
    /// # Errors
    /// [`LedgerError::Store`] and [`LedgerError::Stopped`].
    pub async fn prices(&self) -> Result<Vec<PriceNote>, LedgerError> {
        let mut notes = self.query(|store| store.prices()).await?;
        notes.sort_by_key(|note| (std::cmp::Reverse(note.at), note.version));
        Ok(notes)
    }
}

impl ActorScope<'_> {
    /// Sets what an account pays in the place of the list, for calls that come from now on. Calls and
    /// tasks in flight are charged as they began.
    ///
    /// # Errors
    /// [`LedgerError::UnknownAccount`], [`LedgerError::Invalid`], [`LedgerError::Changed`],
    /// [`LedgerError::OtherRequest`], [`LedgerError::Unavailable`] and [`LedgerError::Stopped`].
    pub async fn set_account_prices(
        &self,
        account: AccountId,
        prices: AccountPrices,
        replaces: IfMatch<AccountPrices>,
    ) -> Result<WriteOutcome<Arc<AccountPrices>>, LedgerError> {
        check_rules(&prices.rules)?;
        let prices = Arc::new(prices);
        let once = self.write("account.prices", account, |locked, audit| {
            let now = &locked.state(account)?.customers.prices;
            replaces.check(|| now.as_deref().cloned().unwrap_or_default())?;
            let group = prices.group.as_ref();
            if group.is_some_and(|group| !locked.operator().groups.contains_key(group)) {
                return Err(LedgerError::Invalid("there is no price group of this name"));
            }
            let prices = Arc::clone(&prices);
            let priced = Record::AccountPriced { account, prices, at: UnixMs::now() };
            Ok(((), vec![priced, audit.act(account, account)]))
        });
        let (_, repeated) = once.await?.place();
        Ok(WriteOutcome { value: self.ledger.account_prices(account), repeated })
    }

    /// Sets the rules of a price group, for calls that come from now on. One that was not there is made.
    ///
    /// What it replaces are the rules that there are, or none where there is no such group.
    ///
    /// # Errors
    /// [`LedgerError::Invalid`], [`LedgerError::Changed`], [`LedgerError::OtherRequest`],
    /// [`LedgerError::Unavailable`] and [`LedgerError::Stopped`].
    pub async fn set_price_group(
        &self,
        name: &str,
        rules: Vec<PriceRule>,
        replaces: IfMatch<Option<Vec<PriceRule>>>,
    ) -> Result<WriteOutcome<Arc<PriceGroup>>, LedgerError> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=GROUP_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_letter) {
            return Err(LedgerError::Invalid(
                "a price group's name has 1 to 64 letters, digits, dots, hyphens and underscores",
            ));
        }
        check_rules(&rules)?;
        let group = Arc::new(PriceGroup { name: name.to_owned(), rules, at: UnixMs::now() });
        let once = self.write("price_group.set", AccountId::OPERATOR, |locked, audit| {
            let groups = &locked.operator().groups;
            replaces.check(|| groups.get(name).map(|group| group.rules.clone()))?;
            if groups.len() >= GROUPS_MAX && !groups.contains_key(name) {
                return Err(LedgerError::Invalid("there are too many price groups"));
            }
            let priced = Record::GroupPriced(Arc::clone(&group));
            Ok(((), vec![priced, audit.act(AccountId::OPERATOR, name)]))
        });
        let (_, repeated) = once.await?.place();
        let value = self.ledger.price_group(name).unwrap_or(group);
        Ok(WriteOutcome { value, repeated })
    }
}

/// Checks the price rules of an account or a group.
fn check_rules(rules: &[PriceRule]) -> Result<(), LedgerError> {
    if rules.len() > RULES_MAX {
        return Err(LedgerError::Invalid("there can be 32 price rules at most"));
    }
    for (index, rule) in rules.iter().enumerate() {
        if let Some(fault) = rule.fault() {
            return Err(LedgerError::Invalid(fault));
        }
        if rules.iter().take(index).any(|earlier| earlier.contradicts(rule)) {
            return Err(LedgerError::Invalid("two rules are for the same models at the same time"));
        }
    }
    Ok(())
}
