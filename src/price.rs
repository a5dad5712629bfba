//! What was used and what a unit of it costs.
//!
//! [`Usage`] counts units; [`Prices`] holds one rate per kind of unit; [`Prices::cost`] is the only
//! place where the two meet. A [`PriceList`] has the [`Prices`] for what a request asks for.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::money::{Charge, Nanousd, Rate};
use crate::words::words;

/// Units used by one request. The kinds are disjoint: a cached input token is not counted again as
/// a plain one, and a reasoning token is counted in `output_tokens` only if `reasoning_tokens` is
/// zero or billed inside the output (the codec settles that when it reads the upstream's figures).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
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

/// A model's prices, and those that apply where a request meets conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceList {
    /// What a request costs that meets no condition.
    pub base: Prices,
    /// Conditions and the prices of requests that meet them; the first that is met counts.
    pub when: Vec<(Traits, Prices)>,
}

impl PriceList {
    /// The prices of a request with these traits.
    #[must_use]
    pub fn of(&self, request: &Traits) -> Prices {
        let met = self.when.iter().find(|(condition, _)| request.meet(condition));
        met.map_or(self.base, |(_, prices)| *prices)
    }
}

/// What a price can depend on. Of a request: what it asks for, `None` where it leaves that open or
/// has no such thing. Of a condition: what it demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// The resolution of a video.
    pub resolution: Option<Resolution>,
    /// The size of an image.
    pub size: Option<ImageSize>,
    /// The quality of an image.
    pub quality: Option<Quality>,
    /// Whether a video is made with sound.
    pub audio: Option<bool>,
    /// Whether a video is a draft.
    pub draft: Option<bool>,
    /// Whether a video is among the inputs.
    pub video_input: Option<bool>,
}

impl Traits {
    fn meet(&self, condition: &Self) -> bool {
        fn met<T: PartialEq>(asked: Option<T>, demanded: Option<T>) -> bool {
            demanded.is_none() || asked == demanded
        }
        met(self.resolution, condition.resolution)
            && met(self.size, condition.size)
            && met(self.quality, condition.quality)
            && met(self.audio, condition.audio)
            && met(self.draft, condition.draft)
            && met(self.video_input, condition.video_input)
    }
}

words! {
    /// The resolution of a video.
    Resolution {
        /// 480 lines.
        P480 = "480p",
        /// 720 lines.
        P720 = "720p",
        /// 1080 lines.
        P1080 = "1080p",
    }
}

words! {
    /// The quality of an image.
    Quality {
        /// GPT-style models.
        Low = "low",
        /// GPT-style models.
        Medium = "medium",
        /// GPT-style models.
        High = "high",
        /// DALL-E-style models.
        Standard = "standard",
        /// DALL-E-style models.
        Hd = "hd",
    }
}

/// The size of an image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageSize {
    /// From left to right.
    pub width: u16,
    /// From top to bottom.
    pub height: u16,
}

impl ImageSize {
    /// Reads `1024x1024`, or `1024*1024` as one provider writes it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let length = |part: &str| {
            let plain = part.bytes().all(|byte| byte.is_ascii_digit()) && !part.starts_with('0');
            part.parse().ok().filter(|_| plain)
        };
        let (width, height) = text.split_once(['x', '*'])?;
        Some(Self { width: length(width)?, height: length(height)? })
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

    #[test]
    fn the_first_condition_that_is_met_counts() {
        let priced =
            |femtousd| Prices { image: Rate::from_femtousd(femtousd), ..Prices::default() };
        let small = ImageSize::parse("256x256");
        let condition = Traits { size: small, ..Traits::default() };
        let finer = Traits { quality: Some(Quality::Hd), ..condition };
        let list = PriceList {
            base: priced(9),
            when: vec![(finer, priced(3)), (condition, priced(2)), (finer, priced(1))],
        };
        assert_eq!(list.of(&Traits::default()), priced(9), "a request that says nothing");
        assert_eq!(list.of(&condition), priced(2), "one of two conditions is met");
        assert_eq!(list.of(&finer), priced(3), "the first of several");
    }

    #[test]
    fn sizes_are_plain_numbers() {
        let size = Some(ImageSize { width: 1664, height: 928 });
        assert_eq!(ImageSize::parse("1664x928"), size);
        assert_eq!(ImageSize::parse("1664*928"), size);
        for text in ["", "auto", "x", "1x", "0x1", "+1x1", "01x1", "1x1x1", "1X1", "70000x1"] {
            assert_eq!(ImageSize::parse(text), None, "{text:?}");
        }
    }
}
