//! Our models, as `models.yaml` prices them.

use tollgate_money::money::Rate;
use tollgate_money::price::{Condition, Unit};

/// A model of `models.yaml`, with the prices that were typed: what has a price by default has none here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnModel {
    /// Customer-facing name; a pattern if it ends with an asterisk.
    pub id: String,
    /// Operations, as in `models.yaml`.
    pub operations: Vec<String>,
    /// Targets that serve the model.
    pub targets: Vec<OwnTarget>,
    /// True if configured as free; it is then not compared.
    pub free: bool,
    /// The prices below `prices`.
    pub base: Vec<(Unit, Rate)>,
    /// The entries of `prices_when`, in their order: what they name.
    pub when: Vec<(Condition, Vec<(Unit, Rate)>)>,
    /// Largest input, in tokens.
    pub context_tokens_max: Option<u64>,
    /// Largest output, in tokens.
    pub output_tokens_max: Option<u64>,
}

/// A target of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnTarget {
    /// The name of the upstream.
    pub upstream: String,
    /// The upstream's name for the model; `None` for the name that customers use.
    pub model: Option<String>,
}

impl OwnModel {
    /// Prefix of a pattern; `None` for a plain id.
    pub(crate) fn pattern(&self) -> Option<&str> {
        self.id.strip_suffix('*')
    }

    /// True if it has one of these operations.
    pub(crate) fn does(&self, operations: &[&str]) -> bool {
        self.operations.iter().any(|own| operations.contains(&own.as_str()))
    }

    /// Configured price of a unit under exactly this condition.
    pub(crate) fn typed(&self, unit: Unit, when: &Condition) -> Option<Rate> {
        if *when == Condition::default() {
            return rate_among(&self.base, unit);
        }
        self.when.iter().find(|(own, _)| own == when).and_then(|(_, rates)| rate_among(rates, unit))
    }

    /// Rate of a unit in a request that meets exactly this condition.
    pub(crate) fn charged(&self, unit: Unit, when: &Condition) -> Rate {
        // The first entry that holds, as at admission.
        let met = self.when.iter().find(|(own, _)| when.implies(own));
        let branch = met.map(|(_, rates)| rates.as_slice()).unwrap_or_default();
        let like = std::iter::successors(Some(unit), |unit| unit.info().priced_as);
        let typed = |unit| rate_among(branch, unit).or_else(|| rate_among(&self.base, unit));
        like.into_iter().find_map(typed).unwrap_or_default()
    }

    /// Set a price. A conditional price needs a base price, which is set to the current charge if
    /// missing. A new entry is inserted before the entries that it specializes.
    pub(crate) fn set(&mut self, unit: Unit, when: &Condition, rate: Rate) {
        if *when == Condition::default() {
            return put(&mut self.base, unit, rate);
        }
        // Without a price in the base, requests that meet no condition would fall to that of a like unit.
        if rate_among(&self.base, unit).is_none() {
            let charged = self.charged(unit, &Condition::default());
            put(&mut self.base, unit, charged);
        }
        if let Some((_, rates)) = self.when.iter_mut().find(|(own, _)| own == when) {
            return put(rates, unit, rate);
        }
        // Behind a general entry, a special one would never be reached.
        let general = self.when.iter().position(|(own, _)| when.implies(own));
        let place = general.unwrap_or(self.when.len());
        self.when.insert(place, (*when, vec![(unit, rate)]));
    }
}

fn rate_among(rates: &[(Unit, Rate)], unit: Unit) -> Option<Rate> {
    rates.iter().find(|(own, _)| *own == unit).map(|(_, rate)| *rate)
}

/// Replaces the price of a unit, or adds it in the order of units.
fn put(rates: &mut Vec<(Unit, Rate)>, unit: Unit, rate: Rate) {
    rates.retain(|(own, _)| *own != unit);
    rates.push((unit, rate));
    rates.sort_by_key(|(own, _)| *own);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::in_tier;
    use tollgate_money::price::ServiceTier;

    const fn dollars(count: i64) -> Rate {
        Rate::from_femtousd(count * 1_000_000_000)
    }

    fn above(tokens: u64) -> Condition {
        Condition { input_tokens_above: Some(tokens), ..Condition::default() }
    }

    #[test]
    fn a_unit_without_a_price_has_that_of_another() {
        let base = vec![(Unit::InputTokens, dollars(2)), (Unit::OutputTokens, dollars(8))];
        let when = vec![(above(200_000), vec![(Unit::InputTokens, dollars(4))])];
        let own = OwnModel { base, when, ..OwnModel::default() };
        let charged = |unit, when| own.charged(unit, &when);
        assert_eq!(charged(Unit::CacheWrite1hTokens, Condition::default()), dollars(2));
        assert_eq!(charged(Unit::CacheReadTokens, above(272_000)), dollars(4), "of its length");
        assert_eq!(charged(Unit::OutputTokens, above(272_000)), dollars(8), "of the base");
        assert_eq!(charged(Unit::WebSearches, Condition::default()), Rate::default());
        assert_eq!(own.typed(Unit::CacheReadTokens, &above(200_000)), None);
    }

    #[test]
    fn a_special_entry_comes_before_a_general_one() {
        let base = vec![(Unit::InputTokens, dollars(2))];
        let when = vec![(above(200_000), vec![(Unit::InputTokens, dollars(4))])];
        let mut own = OwnModel { base, when, ..OwnModel::default() };
        own.set(Unit::InputTokens, &above(272_000), dollars(5));
        own.set(Unit::CacheReadTokens, &in_tier(ServiceTier::Priority), dollars(1));
        let conditions: Vec<_> = own.when.iter().map(|(condition, _)| *condition).collect();
        assert_eq!(conditions, [above(272_000), above(200_000), in_tier(ServiceTier::Priority)]);
        let read = own.typed(Unit::CacheReadTokens, &Condition::default());
        assert_eq!(read, Some(dollars(2)), "a price for requests that meet no condition");
    }
}
