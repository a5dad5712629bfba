//! Prices of a customer that replace the list: rules that multiply a model's prices or set them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{PriceList, Prices, UNITS, Unit};
use crate::money::{Factor, Rate};
use tollgate_types::clock::UnixMs;

/// The most rules that an account or a group can have.
pub const RULES_MAX: usize = 32;
/// The longest name or pattern of models in a rule, in bytes: that of a model.
const MODELS_BYTES_MAX: usize = 128;

/// Price rule of a customer for some models and some time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PriceRule {
    /// A model's name, the beginning of names and an asterisk, or an asterisk for all models.
    pub models: String,
    /// Prices in place of the list.
    pub terms: PriceTerms,
    /// The first moment of it; `None` for as long as there were calls.
    pub from: Option<UnixMs>,
    /// The first moment behind it; `None` for ever.
    pub until: Option<UnixMs>,
}

/// Prices in place of the list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PriceTerms {
    /// A factor on the list prices.
    Factor(Factor),
    /// Fixed prices under all conditions; other units keep their list price.
    Prices(Vec<PricedUnit>),
}

/// Price of one unit in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PricedUnit {
    /// The priced unit.
    pub unit: Unit,
    /// Price per unit; not negative.
    pub rate: Rate,
}

/// In records the unit's number and the rate.
impl Serialize for PricedUnit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.unit.number(), self.rate).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PricedUnit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (number, rate) = <(u8, Rate)>::deserialize(deserializer)?;
        // Refused rather than skipped: charging without it would be another price than was agreed.
        let unknown = || serde::de::Error::custom("a unit of a later version");
        let unit = Unit::from_number(number).ok_or_else(unknown)?;
        Ok(Self { unit, rate })
    }
}

impl PriceRule {
    /// True if the rule is in force at this time.
    #[must_use]
    pub fn is_in_force(&self, at: UnixMs) -> bool {
        self.from.is_none_or(|from| from <= at) && self.until.is_none_or(|until| at < until)
    }

    /// Prefix of the model names, if the rule is for more than one.
    fn prefix(&self) -> Option<&str> {
        self.models.strip_suffix('*')
    }

    fn is_for(&self, model: &str) -> bool {
        self.prefix().map_or(self.models == model, |prefix| model.starts_with(prefix))
    }

    /// Precedence: an exact name before a prefix, and a longer one before a shorter one.
    fn narrowness(&self) -> (bool, usize) {
        (self.prefix().is_none(), self.models.len())
    }

    /// True if both apply to the same models at some common time.
    #[must_use]
    pub fn contradicts(&self, other: &Self) -> bool {
        let begins_before_end = |one: &Self, other: &Self| {
            one.from.zip(other.until).is_none_or(|(from, until)| from < until)
        };
        self.models == other.models
            && begins_before_end(self, other)
            && begins_before_end(other, self)
    }

    /// Fault of the rule; `None` if it is valid.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@".contains(&byte);
        let name = self.prefix().unwrap_or(&self.models);
        if self.models.is_empty()
            || self.models.len() > MODELS_BYTES_MAX
            || !name.bytes().all(is_name)
        {
            return Some(
                "`models` is a model's name, its beginning and an asterisk, or an asterisk",
            );
        }
        if self.from.zip(self.until).is_some_and(|(from, until)| from >= until) {
            return Some("`until` is not after `from`");
        }
        match &self.terms {
            PriceTerms::Factor(_) => None,
            PriceTerms::Prices(prices) if prices.is_empty() => Some("there is no price"),
            PriceTerms::Prices(prices) => {
                let is_bad = |(index, one): (usize, &PricedUnit)| {
                    let mut earlier = prices.iter().take(index);
                    // Twice would make the price depend on which of the two is found first.
                    one.rate < Rate::default() || earlier.any(|other| other.unit == one.unit)
                };
                let is_bad = prices.iter().enumerate().any(is_bad);
                is_bad.then_some("a price is negative, or there twice")
            }
        }
    }
}

/// The rule that says what `model` costs `at` this moment: the narrowest of those in force.
#[must_use]
pub fn rule_for<'a>(rules: &'a [PriceRule], model: &str, at: UnixMs) -> Option<&'a PriceRule> {
    let fitting = rules.iter().filter(|rule| rule.is_for(model) && rule.is_in_force(at));
    fitting.max_by_key(|rule| rule.narrowness())
}

impl PriceTerms {
    /// Applies the rule to a list that sells these units and those priced by default. Prices of
    /// other units have no effect: nothing is held for them.
    #[must_use]
    pub fn apply(&self, list: &PriceList, sold: &[Unit]) -> PriceList {
        match self {
            Self::Factor(factor) => list.times(*factor),
            Self::Prices(own) => {
                let is_sold = |one: &&PricedUnit| {
                    let like = |unit: &Unit| unit.info().priced_as;
                    // A unit that is sold by default at another's price is sold with it.
                    let mut units = std::iter::successors(Some(one.unit), like);
                    units.any(|unit| sold.contains(&unit))
                };
                let own: Vec<PricedUnit> = own.iter().filter(is_sold).copied().collect();
                let replaced = |prices: &Prices| replace(prices, &own);
                let when = list.when.iter().map(|(when, prices)| (*when, replaced(prices)));
                PriceList { base: replaced(&list.base), when: when.collect() }
            }
        }
    }
}

/// The prices with those of `own` in their places. What costs as much as another unit goes on doing so.
fn replace(prices: &Prices, own: &[PricedUnit]) -> Prices {
    UNITS.iter().fold(*prices, |mut replaced, info| {
        let typed = own.iter().find(|one| one.unit == info.unit).map(|one| one.rate);
        let follows = info.priced_as.filter(|like| prices[*like] == prices[info.unit]);
        replaced[info.unit] = match (typed, follows) {
            (Some(rate), _) => rate,
            (None, Some(like)) => replaced[like],
            (None, None) => prices[info.unit],
        };
        replaced
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::{Condition, Traits, Usage};

    fn rule(models: &str, factor: &str) -> PriceRule {
        let terms = PriceTerms::Factor(Factor::parse(factor).expect("a factor"));
        PriceRule { models: models.to_owned(), terms, from: None, until: None }
    }

    fn rate(nanousd: i64) -> Rate {
        Rate::from_femtousd(nanousd.saturating_mul(1_000_000))
    }

    #[test]
    fn a_name_comes_before_its_beginning_and_that_before_all() {
        let rules = [rule("*", "1"), rule("gpt-5*", "2"), rule("gpt*", "3"), rule("gpt-5.2", "4")];
        let found =
            |model: &str| rule_for(&rules, model, UnixMs(7)).map(|rule| rule.models.as_str());
        assert_eq!(found("gpt-5.2"), Some("gpt-5.2"));
        assert_eq!(found("gpt-5.2-mini"), Some("gpt-5*"));
        assert_eq!(found("gpt-4o"), Some("gpt*"));
        assert_eq!(found("claude"), Some("*"));
        assert_eq!(rule_for(&rules[1..], "claude", UnixMs(7)), None);
    }

    #[test]
    fn a_rule_counts_from_its_first_moment_up_to_its_end() {
        let dated = |from, until| PriceRule {
            from: Some(UnixMs(from)),
            until: Some(UnixMs(until)),
            ..rule("m", "2")
        };
        let rules = [rule("*", "1"), dated(10, 20)];
        for (at, models) in [(9, "*"), (10, "m"), (19, "m"), (20, "*")] {
            let found = rule_for(&rules, "m", UnixMs(at)).map(|rule| rule.models.as_str());
            assert_eq!(found, Some(models), "at {at}");
        }
        assert!(dated(10, 20).contradicts(&dated(19, 30)) && rule("m", "1").contradicts(&rules[1]));
        assert!(!dated(10, 20).contradicts(&dated(20, 30)) && !rules[0].contradicts(&rules[1]));
        assert!(dated(20, 20).fault().is_some() && dated(19, 20).fault().is_none());
        for models in ["", "a b", "*a", "a*b", "a**", "é"] {
            assert!(rule(models, "1").fault().is_some(), "{models:?}");
        }
    }

    #[test]
    fn own_prices_stand_in_every_branch_and_what_follows_them_goes_with_them() {
        let base =
            Prices { input: rate(10), cache_read: rate(10), output: rate(40), ..Prices::default() };
        let long = Prices { input: rate(20), cache_read: rate(5), ..base };
        let above = Condition { input_tokens_above: Some(100), ..Condition::default() };
        let list = PriceList { base, when: vec![(above, long)] };
        let own = PricedUnit { unit: Unit::InputTokens, rate: rate(7) };
        let unsold = PricedUnit { unit: Unit::Images, rate: rate(7) };
        let terms = PriceTerms::Prices(vec![own, unsold]);
        let applied = terms.apply(&list, &[Unit::InputTokens, Unit::OutputTokens]);
        assert_eq!(applied.base.image, Rate::default(), "nothing would be held for it");
        assert_eq!((applied.base.input, applied.base.cache_read), (rate(7), rate(7)));
        assert_eq!(applied.base.output, rate(40), "which the rule does not name");
        let usage = Usage { input_tokens: 101, ..Usage::ZERO };
        let prices = applied.prices(&Traits::default(), &Traits::default(), &usage, UnixMs(0));
        assert_eq!((prices.input, prices.cache_read), (rate(7), rate(5)));
        let written = postcard::to_stdvec(&terms).expect("memory");
        assert_eq!(postcard::from_bytes::<PriceTerms>(&written), Ok(terms));
    }
}
