//! Usage, and prices per unit.
//!
//! [`Usage`] counts units; [`Prices`] holds one rate per kind of unit; [`Prices::cost`] is the only
//! place where the two meet. A [`PriceList`] has the [`Prices`] for what a request asks for and its
//! answer shows. What units there are says one table, [`UNITS`].
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

mod amounts;
mod condition;
mod list;
mod rule;
mod traits;
mod units;
mod version;

use std::ops::{Index, IndexMut};

use schemars::JsonSchema;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::condition::{Condition, DayWindow};
pub use self::list::{PriceList, Quote};
pub use self::rule::{PriceRule, PriceTerms, PricedUnit, RULES_MAX, rule_for};
pub use self::traits::{ImageSize, InferenceGeo, Quality, Resolution, ServiceTier, Speed, Traits};
pub use self::units::{PLACED, Side, UNITS, Unit, UnitInfo};
pub use self::version::PriceVersion;

use crate::each_unit;
use crate::money::{Charge, Nanousd, Rate};

/// Finds what a type has for a unit in the field of that unit.
macro_rules! index_by_unit {
    ($type:ty: $value:ty, $($unit:ident: $field:ident),+) => {
        impl Index<Unit> for $type {
            type Output = $value;

            fn index(&self, unit: Unit) -> &$value {
                match unit {
                    $(Unit::$unit => &self.$field),+
                }
            }
        }

        impl IndexMut<Unit> for $type {
            fn index_mut(&mut self, unit: Unit) -> &mut $value {
                match unit {
                    $(Unit::$unit => &mut self.$field),+
                }
            }
        }
    };
}

macro_rules! usage {
    ($(
        $(#[$doc:meta])* $unit:ident: $name:ident,
        $(#[$rate_doc:meta])* $rate:ident,
        $(#[$price_doc:meta])* $price:ident: $typed:ident,
        $info:tt;
    )+) => {
        /// Units used by one request. The kinds are disjoint: a cached input token is not counted again as
        /// a plain one, and a reasoning token is counted in `output_tokens` only if `reasoning_tokens` is
        /// zero or billed inside the output (the codec settles that when it reads the upstream's figures).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
        pub struct Usage {
            $($(#[$doc])* pub $name: u64),+
        }

        impl Usage {
            /// Zero of every unit.
            pub const ZERO: Self = Self { $($name: 0),+ };

            /// The count of every unit, in the order of [`Unit::ALL`].
            #[must_use]
            pub const fn counts(&self) -> [u64; Unit::COUNT] {
                [$(self.$name),+]
            }

            /// The usage of these counts, in the order of [`Unit::ALL`].
            const fn from_counts(counts: [u64; Unit::COUNT]) -> Self {
                let [$($name),+] = counts;
                Self { $($name),+ }
            }
        }

        index_by_unit!(Usage: u64, $($unit: $name),+);
    };
}

each_unit!(usage);

impl Usage {
    /// Every unit with its count.
    pub fn units(&self) -> impl Iterator<Item = (&'static UnitInfo, u64)> + use<> {
        UNITS.iter().zip(self.counts())
    }

    /// Units as customers see them: hidden units count as the unit that they are shown as.
    pub fn shown(&self) -> impl Iterator<Item = (&'static UnitInfo, u64)> + use<> {
        let counts = *self;
        UNITS.iter().filter(|info| info.shown_as == info.unit).map(move |info| {
            let parts = counts.units().filter(|(part, _)| part.shown_as == info.unit);
            // Saturating: the counts are an upstream's, which may report anything.
            (info, parts.fold(0, |sum, (_, count)| count.saturating_add(sum)))
        })
    }

    /// All units of a side together.
    #[must_use]
    pub fn total(&self, side: Side) -> u64 {
        let counts = self.counts();
        let of_side = UNITS.iter().zip(&counts).filter(|(info, _)| info.side == side);
        of_side.fold(0, |sum, (_, count)| count.saturating_add(sum))
    }

    /// All input tokens, cached or not.
    #[must_use]
    pub fn input_tokens_total(&self) -> u64 {
        self.total(Side::Input)
    }

    /// The larger count of each unit.
    #[must_use]
    pub fn dearer(self, other: &Self) -> Self {
        let mut most = self.counts();
        for (most, other) in most.iter_mut().zip(other.counts()) {
            *most = (*most).max(other);
        }
        Self::from_counts(most)
    }

    /// This and `more` together. Counts past the range stay at its end.
    #[must_use]
    pub fn plus(self, more: &Self) -> Self {
        let mut sums = self.counts();
        for (sum, more) in sums.iter_mut().zip(more.counts()) {
            *sum = sum.saturating_add(more);
        }
        Self::from_counts(sums)
    }
}

/// Serializes as an object with the count of every unit in JSON, and as described at [`amounts`] in records.
impl Serialize for Usage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            let mut object = serializer.serialize_struct("Usage", Unit::COUNT)?;
            for (info, count) in self.units() {
                object.serialize_field(info.name, &count)?;
            }
            object.end()
        } else {
            // Without names: every record of a call has a usage, most of whose counts are zero.
            amounts::write(self.counts(), serializer)
        }
    }
}

/// Deserializes from records. Nothing reads usage from JSON.
impl<'de> Deserialize<'de> for Usage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        amounts::read(deserializer).map(Self::from_counts)
    }
}

/// Source of a settled usage figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The upstream reported it.
    Upstream,
    /// The upstream reported no usage, or an impossible one; it was estimated from the relayed data.
    Estimated,
    /// Nothing was used, so nothing was reported.
    None,
}

impl UsageSource {
    /// The word used in logs, metrics and the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Estimated => "estimated",
            Self::None => "none",
        }
    }
}

macro_rules! prices {
    ($(
        $(#[$doc:meta])* $unit:ident: $name:ident,
        $(#[$rate_doc:meta])* $rate:ident,
        $(#[$price_doc:meta])* $price:ident: $typed:ident,
        $info:tt;
    )+) => {
        /// One model's prices, per unit. Compiled from `models.yaml`; frozen for a request when it is
        /// admitted.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Prices {
            $($(#[$rate_doc])* pub $rate: Rate),+
        }

        impl Prices {
            /// Cost of `usage`, rounded up once.
            #[must_use]
            pub fn cost(&self, usage: &Usage) -> Nanousd {
                Charge::default()$(.plus(usage.$name, self.$rate))+.round_up()
            }

            /// The rate of every unit, in the order of [`Unit::ALL`].
            const fn rates(&self) -> [Rate; Unit::COUNT] {
                [$(self.$rate),+]
            }

            /// The dearer rate of each unit.
            #[must_use]
            pub fn dearer(self, other: &Self) -> Self {
                Self { $($rate: self.$rate.max(other.$rate)),+ }
            }

            /// These prices, each changed.
            #[must_use]
            pub fn map(&self, change: impl Fn(Rate) -> Rate) -> Self {
                Self { $($rate: change(self.$rate)),+ }
            }

            const fn from_rates(rates: [Rate; Unit::COUNT]) -> Self {
                let [$($rate),+] = rates;
                Self { $($rate),+ }
            }
        }

        index_by_unit!(Prices: Rate, $($unit: $rate),+);
    };
}

each_unit!(prices);

impl Serialize for Prices {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        amounts::write(self.rates(), serializer)
    }
}

impl<'de> Deserialize<'de> for Prices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        amounts::read(deserializer).map(Self::from_rates)
    }
}

impl Prices {
    /// The prices of `rate`, asked for every unit in the order of [`Unit::ALL`], with those of the units
    /// before it.
    #[must_use]
    pub fn of_each(rate: impl Fn(&UnitInfo, &Self) -> Rate) -> Self {
        // In the table's order a unit stands behind the one whose price it takes.
        UNITS.iter().fold(Self::default(), |mut prices, info| {
            prices[info.unit] = rate(info, &prices);
            prices
        })
    }

    /// The prices that do not go without saying: those that do not follow the price of another unit and,
    /// of units that have no other to follow, those that are not zero.
    pub fn explicit(&self) -> impl Iterator<Item = (&'static UnitInfo, Rate)> {
        let rates = UNITS.iter().map(|info| (info, self[info.unit]));
        rates.filter(|(info, rate)| {
            !self.follows(info) && (info.priced_as.is_some() || *rate != Rate::default())
        })
    }

    /// The prices that do not go without saying beside those of `base`: those that differ or follow
    /// another unit in one of the two alone, and do not follow it in both.
    pub fn explicit_beside(&self, base: &Self) -> impl Iterator<Item = (&'static UnitInfo, Rate)> {
        let rates = UNITS.iter().map(|info| (info, self[info.unit]));
        rates.filter(|(info, rate)| {
            let follows = (base.follows(info), self.follows(info));
            follows.0 != follows.1 || !follows.1 && *rate != base[info.unit]
        })
    }

    /// True if a unit costs the same as the unit whose price it takes by default.
    fn follows(&self, info: &UnitInfo) -> bool {
        info.priced_as.is_some_and(|like| self[like] == self[info.unit])
    }

    /// The dearest way in which one input token can be billed of a prompt that can be billed in these
    /// ways: what a hold must assume.
    #[must_use]
    pub fn input_dearest(&self, ways: InputWays) -> Rate {
        // A cached token may cost more than a plain one: a price list is not bound to be sensible.
        let read = self.input.max(self.cache_read);
        let written = match ways.cache_writes {
            CacheWrites::None => read,
            CacheWrites::Short => read.max(self.cache_write),
            CacheWrites::Hour => read.max(self.cache_write).max(self.cache_write_1h),
            CacheWrites::Any => {
                read.max(self.cache_write).max(self.cache_write_1h).max(self.cache_write_12h)
            }
        };
        if !ways.has_media {
            return written;
        }
        [self.audio_input, self.image_input, self.video_input].into_iter().fold(written, Rate::max)
    }
}

/// The ways in which a prompt can be billed beside that of plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputWays {
    /// Part of the prompt that can be billed as cache writes.
    pub cache_writes: CacheWrites,
    /// True if the prompt can contain a picture, sound or video.
    pub has_media: bool,
}

impl Default for InputWays {
    /// All ways, if nothing else is known.
    fn default() -> Self {
        Self { cache_writes: CacheWrites::Any, has_media: true }
    }
}

/// Part of a prompt that can be billed as cache writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheWrites {
    /// None: the upstream writes only on request, and there is none.
    None,
    /// The whole prompt, for the default lifetime.
    Short,
    /// The whole prompt, for up to an hour.
    Hour,
    /// The whole prompt, for any lifetime.
    #[default]
    Any,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_unit_is_priced() {
        let rate = |nanousd: i64| Rate::from_femtousd(nanousd * 1_000_000);
        let (mut prices, mut one_of_each, mut sum) = (Prices::default(), Usage::default(), 0);
        for (place, unit) in (0..).zip(Unit::ALL) {
            let nanousd = 2_i64.pow(place);
            prices[*unit] = rate(nanousd);
            one_of_each[*unit] = 1;
            sum += nanousd;
        }
        assert_eq!(prices.cost(&one_of_each), Nanousd::new(sum), "one unit of every kind");
        let dearest =
            |cache_writes| prices.input_dearest(InputWays { cache_writes, has_media: false });
        assert_eq!(dearest(CacheWrites::Any), prices.cache_write_12h, "the longest is the dearest");
        assert_eq!(dearest(CacheWrites::Hour), prices.cache_write_1h, "of those up to an hour");
        let ways = InputWays { cache_writes: CacheWrites::Hour, has_media: true };
        assert_eq!(prices.input_dearest(ways), prices.video_input, "or a video");
        assert_eq!(dearest(CacheWrites::Short), prices.cache_write.max(prices.input));
        assert_eq!(dearest(CacheWrites::None), prices.input.max(prices.cache_read));
    }
}
