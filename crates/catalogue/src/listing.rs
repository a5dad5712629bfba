//! Prices of a list's models in our units.

use tollgate_money::money::Rate;
use tollgate_money::price::{Condition, Unit};

use crate::figure::{self, FigureError, UnitScale};
use crate::tree::Tree;

/// Format of a price list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListFormat {
    /// The `api.json` of models.dev.
    ModelsDev,
    /// The `model_prices_and_context_window.json` of LiteLLM.
    LiteLlm,
    /// The answer of OpenRouter's `/api/v1/models`.
    OpenRouter,
}

impl ListFormat {
    /// The name of who keeps such lists.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ModelsDev => "models.dev",
            Self::LiteLlm => "litellm",
            Self::OpenRouter => "openrouter",
        }
    }
}

/// A parsed price list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue {
    /// Format of the price list.
    pub format: ListFormat,
    /// Its models, in its order.
    pub listings: Vec<Listing>,
}

/// A list's entry for one model of one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Provider, by the list's name.
    pub provider: String,
    /// The provider's name for it, without a prefix of the list's.
    pub model: String,
    /// Key or id of the entry in the list.
    pub listed_as: String,
    /// Prices in units that exist here.
    pub rates: Vec<ListedRate>,
    /// Prices that `models.yaml` cannot express.
    pub unsayable: Vec<Unsayable>,
    /// Reason why the entry is malformed; it is then ignored.
    pub malformed: Option<String>,
    /// Largest input, in tokens.
    pub context_tokens_max: Option<u64>,
    /// Largest output, in tokens.
    pub output_tokens_max: Option<u64>,
}

/// Price of one unit under a condition; the base price if the condition has no fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedRate {
    /// Unit of the price.
    pub unit: Unit,
    /// Condition on the request.
    pub when: Condition,
    /// The price of one unit.
    pub rate: Rate,
}

/// A non-zero price without a unit here, or without one that can be billed exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsayable {
    /// The list's name for it.
    pub key: String,
    /// The price as it was typed; empty for one in parts.
    pub figure: String,
    /// Reason why it has no equivalent here.
    pub why: String,
}

/// Meaning of a price in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The price of a unit.
    Price(Unit, UnitScale),
    /// The price of a part of a unit, which is charged at the unit's price here. It can be expressed only if
    /// both prices are equal.
    PartOf(Unit, UnitScale),
    /// The price of a part that may be the only one: of the first unit if that has no price, and of the
    /// second beside it.
    InPlaceOf(Unit, Unit, UnitScale),
    /// No unit here counts it.
    Unknown,
}

#[cfg(test)]
impl Meaning {
    /// True if it is the price of the unit.
    pub(crate) fn is_of(&self, unit: Unit) -> bool {
        match self {
            Self::Price(of, _) => *of == unit,
            Self::InPlaceOf(of, alone, _) => *of == unit || *alone == unit,
            Self::PartOf(..) | Self::Unknown => false,
        }
    }
}

/// Builder of a listing.
#[derive(Debug, Default)]
pub(crate) struct EntryReading {
    rates: Vec<ListedRate>,
    unsayable: Vec<Unsayable>,
    parts: Vec<PartPrice>,
    malformed: Option<String>,
}

/// Listed price for a subset of what a unit counts. Once all prices are read, it equals the unit's price, is
/// billed as a unit of its own, or is reported as inexpressible.
#[derive(Debug)]
struct PartPrice {
    key: String,
    figure: String,
    /// Separate unit of the part, if there is one.
    alone: Option<Unit>,
    listed: ListedRate,
}

impl EntryReading {
    /// A price by the list's name for it.
    pub(crate) fn price(&mut self, key: &str, value: &Tree<'_>, meaning: Meaning, when: Condition) {
        let (unit, per, part) = match meaning {
            Meaning::Price(unit, per) => (unit, per, None),
            Meaning::PartOf(unit, per) => (unit, per, Some(None)),
            Meaning::InPlaceOf(unit, alone, per) => (unit, per, Some(Some(alone))),
            Meaning::Unknown => return self.unknown(key, value),
        };
        let figure = match value {
            Tree::Word => return,
            Tree::Number(figure) => *figure,
            Tree::Text(figure) => figure.as_str(),
            Tree::List(_) | Tree::Fields(_) => return self.refuse(key, "is not a number"),
        };
        let listed = match figure::rate(figure, per) {
            Ok(rate) => ListedRate { unit, when, rate },
            Err(FigureError::NotANumber) => {
                return self.refuse(key, &format!("is not a number: {figure:?}"));
            }
            Err(error) => return self.unsayable(key, figure, &error.to_string()),
        };
        match part {
            None => self.add(key, figure, listed),
            Some(_) if listed.rate == Rate::default() => {}
            Some(alone) => {
                let (key, figure) = (key.to_owned(), figure.to_owned());
                self.parts.push(PartPrice { key, figure, alone, listed });
            }
        }
    }

    /// Record a price without an equivalent here, with the reason.
    pub(crate) fn unsayable(&mut self, key: &str, figure: &str, why: &str) {
        let (key, figure, why) = (key.to_owned(), figure.to_owned(), why.to_owned());
        self.unsayable.push(Unsayable { key, figure, why });
    }

    /// The entry cannot be read: its field `key` is wrong in this way.
    pub(crate) fn refuse(&mut self, key: &str, why: &str) {
        self.malformed.get_or_insert_with(|| format!("`{key}` {why}"));
    }

    /// Records a price without a corresponding unit, unless it is zero.
    fn unknown(&mut self, key: &str, value: &Tree<'_>) {
        const WHY: &str = "there is no unit for it";
        match value {
            Tree::Number(figure) if figure::rate(figure, UnitScale::One) == Ok(Rate::default()) => {
            }
            Tree::Number(figure) => self.unsayable(key, figure, WHY),
            Tree::Text(text) => match figure::rate(text, UnitScale::One) {
                Ok(rate) if rate == Rate::default() => {}
                // Words are no price.
                Err(FigureError::NotANumber) => {}
                Ok(_) | Err(_) => self.unsayable(key, text, WHY),
            },
            Tree::List(items) if !items.is_empty() => self.unsayable(key, "", WHY),
            Tree::Fields(fields) if !fields.is_empty() => self.unsayable(key, "", WHY),
            Tree::Word | Tree::List(_) | Tree::Fields(_) => {}
        }
    }

    fn add(&mut self, key: &str, figure: &str, listed: ListedRate) {
        let is_same =
            |earlier: &&ListedRate| earlier.unit == listed.unit && earlier.when == listed.when;
        match self.rates.iter().find(is_same) {
            None => self.rates.push(listed),
            Some(earlier) if earlier.rate == listed.rate => {}
            Some(_) => self.unsayable(key, figure, "it contradicts another price of the entry"),
        }
    }

    /// Build the listing once all prices that others refer to have been read.
    pub(crate) fn finish(mut self, provider: &str, model: &str, listed_as: &str) -> Listing {
        for part in std::mem::take(&mut self.parts) {
            let ListedRate { unit, when, rate } = part.listed;
            let listed = |when: Condition| {
                let mut rates = self.rates.iter();
                rates.find(|listed| listed.unit == unit && listed.when == when)
            };
            // A tier that has no price of its own for the unit has its base price.
            let whole = listed(when).or_else(|| listed(Condition::default()));
            let whole = whole.map(|listed| listed.rate).filter(|whole| *whole != Rate::default());
            match (whole, part.alone) {
                (None, Some(_)) => {
                    self.rates.retain(|listed| listed.unit != unit || listed.when != when);
                    self.rates.push(part.listed);
                }
                (Some(whole), _) if whole == rate => {}
                (Some(_), Some(alone)) => {
                    self.add(&part.key, &part.figure, ListedRate { unit: alone, ..part.listed });
                }
                _ => {
                    let why = format!("it is charged as `{}` here", unit.info().price);
                    self.unsayable(&part.key, &part.figure, &why);
                }
            }
        }
        let Self { mut rates, mut unsayable, malformed, .. } = self;
        if malformed.is_some() {
            rates.clear();
            unsayable.clear();
        }
        Listing {
            provider: provider.to_owned(),
            model: model.to_owned(),
            listed_as: listed_as.to_owned(),
            rates,
            unsayable,
            malformed,
            context_tokens_max: None,
            output_tokens_max: None,
        }
    }
}
