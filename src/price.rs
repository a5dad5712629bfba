//! What was used and what a unit of it costs.
//!
//! [`Usage`] counts units; [`Prices`] holds one rate per kind of unit; [`Prices::cost`] is the only
//! place where the two meet.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use serde::{Deserialize, Serialize};

use crate::money::{Charge, Nanousd, Rate};

/// Units used by one request. The kinds are disjoint: a cached input token is not counted again as
/// a plain one, and a reasoning token is counted in `output_tokens` only if `reasoning_tokens` is
/// zero or billed inside the output (the codec settles that when it reads the upstream's figures).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens that were neither read from nor written to a prompt cache.
    pub input_tokens: u64,
    /// Input tokens read from a prompt cache.
    pub cache_read_tokens: u64,
    /// Input tokens written to a prompt cache for five minutes (or for the upstream's only period).
    pub cache_write_tokens: u64,
    /// Input tokens written to a prompt cache for one hour.
    pub cache_write_1h_tokens: u64,
    /// Output tokens, reasoning included where the upstream counts it there.
    pub output_tokens: u64,
    /// Images made.
    pub images: u64,
    /// Seconds of video made.
    pub seconds: u64,
    /// Characters spoken.
    pub characters: u64,
}

impl Usage {
    /// Nothing was used.
    pub const ZERO: Self = Self {
        input_tokens: 0,
        cache_read_tokens: 0,
        cache_write_tokens: 0,
        cache_write_1h_tokens: 0,
        output_tokens: 0,
        images: 0,
        seconds: 0,
        characters: 0,
    };

    /// All input tokens, cached or not.
    #[must_use]
    pub fn input_tokens_total(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens)
            .saturating_add(self.cache_write_1h_tokens)
    }
}

/// Where a settled usage figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The upstream reported it.
    Upstream,
    /// The upstream reported none, or none that can be true; it was estimated from what was relayed.
    Estimated,
    /// Nothing was used.
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

/// One model's prices, per unit. Compiled from `models.yaml`; frozen for a request when it is
/// admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prices {
    /// Per plain input token.
    pub input: Rate,
    /// Per input token read from a cache.
    pub cache_read: Rate,
    /// Per input token written to a five-minute cache.
    pub cache_write: Rate,
    /// Per input token written to a one-hour cache.
    pub cache_write_1h: Rate,
    /// Per output token.
    pub output: Rate,
    /// Per image.
    pub image: Rate,
    /// Per second of video.
    pub second: Rate,
    /// Per character of speech.
    pub character: Rate,
}

impl Prices {
    /// What `usage` costs, rounded up once.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> Nanousd {
        Charge::default()
            .plus(usage.input_tokens, self.input)
            .plus(usage.cache_read_tokens, self.cache_read)
            .plus(usage.cache_write_tokens, self.cache_write)
            .plus(usage.cache_write_1h_tokens, self.cache_write_1h)
            .plus(usage.output_tokens, self.output)
            .plus(usage.images, self.image)
            .plus(usage.seconds, self.second)
            .plus(usage.characters, self.character)
            .round_up()
    }

    /// The dearest way in which one input token can be billed: what a hold must assume.
    #[must_use]
    pub fn input_dearest(&self) -> Rate {
        self.input.max(self.cache_read).max(self.cache_write).max(self.cache_write_1h)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_unit_is_priced() {
        let rate = |nanousd: i64| Rate::from_femtousd(nanousd * 1_000_000);
        let prices = Prices {
            input: rate(1),
            cache_read: rate(10),
            cache_write: rate(100),
            cache_write_1h: rate(1_000),
            output: rate(10_000),
            image: rate(100_000),
            second: rate(1_000_000),
            character: rate(10_000_000),
        };
        let one_of_each = Usage {
            input_tokens: 1,
            cache_read_tokens: 1,
            cache_write_tokens: 1,
            cache_write_1h_tokens: 1,
            output_tokens: 1,
            images: 1,
            seconds: 1,
            characters: 1,
        };
        assert_eq!(prices.cost(&one_of_each), Nanousd::new(11_111_111), "one unit of every kind");
        assert_eq!(prices.input_dearest(), rate(1_000), "the one-hour cache write is dearest");
    }
}
