//! Money as integers: nano-dollars for amounts, femto-dollars inside a price.
//!
//! One US dollar is 10⁹ nano-dollars, so an `i64` holds ± 9.2 billion dollars. A price may be finer
//! than a nano-dollar per unit ($0.0375 per million tokens is 37.5 nano-dollars per token), so rates
//! and running totals are femto-dollars (10⁻¹⁵) in `i128` and are rounded **up, once, at the end**.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Nano-dollars in one US dollar.
const NANOUSD_PER_USD: u64 = 1_000_000_000;
/// Femto-dollars in one nano-dollar.
const FEMTOUSD_PER_NANOUSD: u32 = 1_000_000;

/// An amount of money in nano-dollars (10⁻⁹ US dollars). May be negative only as a difference.
///
/// In binary formats it is the integer; in JSON and YAML it is a decimal string of dollars such as
/// `"10.00"`, because a JSON number would pass through a float in most clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanousd(i64);

impl Nanousd {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The largest amount that can be represented, about $9.2 billion.
    pub const MAX: Self = Self(i64::MAX);

    /// The amount of `nanousd` nano-dollars.
    #[must_use]
    pub const fn new(nanousd: i64) -> Self {
        Self(nanousd)
    }

    /// The integer number of nano-dollars.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The sum, or `None` past the range.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// The sum, at most [`Nanousd::MAX`]: for totals of amounts that were checked when they were booked.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        self.checked_add(other).unwrap_or(Self::MAX)
    }

    /// The difference, or `None` past the range. May be negative.
    #[must_use]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(difference) => Some(Self(difference)),
            None => None,
        }
    }

    /// The difference, but never below zero.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0).max(0))
    }

    /// True if the amount is below zero.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// True for exactly no money.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Nanousd {
    /// Dollars with at least two and at most nine decimals, and no currency sign: `10.00`, `0.000150`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(self.ascii().as_bytes()).unwrap_or_default())
    }
}

/// The text of an amount, all of which is ASCII. It is made from its end on.
#[derive(Clone, Copy, Debug)]
pub struct AmountText {
    bytes: [u8; Self::BYTES_MAX],
    begin: usize,
}

impl AmountText {
    /// A sign, ten digits, a point and nine digits: the smallest amount.
    const BYTES_MAX: usize = 21;

    /// The text, as bytes that are all ASCII.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(self.begin..).unwrap_or_default()
    }

    fn put(&mut self, byte: u8) {
        self.begin = self.begin.saturating_sub(1);
        if let Some(place) = self.bytes.get_mut(self.begin) {
            *place = byte;
        }
    }

    /// Writes the last digit of a number and returns the others.
    fn put_digit(&mut self, number: u64) -> u64 {
        self.put(b'0'.wrapping_add(u8::try_from(number % 10).unwrap_or(0)));
        number / 10
    }
}

impl Nanousd {
    /// Its text as [`Display`](fmt::Display) shows it, for those who write bytes: the formatting of `core`
    /// takes five times as long, and each line of the access log has an amount.
    #[must_use]
    pub fn ascii(self) -> AmountText {
        let (bytes, begin) = ([0; AmountText::BYTES_MAX], AmountText::BYTES_MAX);
        let mut text = AmountText { bytes, begin };
        let magnitude = self.0.unsigned_abs();
        let (mut whole, mut fraction) = (magnitude / NANOUSD_PER_USD, magnitude % NANOUSD_PER_USD);
        let mut decimals = 9_u32;
        while decimals > 2 && fraction % 10 == 0 {
            fraction /= 10;
            decimals = decimals.saturating_sub(1);
        }
        for _ in 0..decimals {
            fraction = text.put_digit(fraction);
        }
        text.put(b'.');
        whole = text.put_digit(whole);
        while whole > 0 {
            whole = text.put_digit(whole);
        }
        if self.0 < 0 {
            text.put(b'-');
        }
        text
    }
}

/// Fault of a text that is no amount of dollars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseMoneyError(&'static str);

impl fmt::Display for ParseMoneyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ParseMoneyError {}

impl FromStr for Nanousd {
    type Err = ParseMoneyError;

    /// Reads dollars: digits, optionally a point and one to nine digits. No sign, exponent or space.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const SHAPE: ParseMoneyError =
            ParseMoneyError("expected dollars as a decimal string such as \"10.00\"");
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !all_digits(whole) || !all_digits(fraction) {
            return Err(SHAPE);
        }
        // Refused rather than rounded: whoever types it must see the amount that is booked.
        if fraction.len() > 9 {
            return Err(ParseMoneyError(
                "at most nine decimals: one nano-dollar is the smallest amount",
            ));
        }
        let too_large = ParseMoneyError("the amount is larger than 9.2 billion dollars");
        // As one integer, since a float would lose nano-dollars from nine million dollars on.
        format!("{whole}{fraction:0<9}").parse::<i64>().map(Self).map_err(|_| too_large)
    }
}

impl Serialize for Nanousd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            // A string: JSON numbers are doubles in most clients, which cannot hold every nano-dollar.
            serializer.collect_str(self)
        } else {
            serializer.serialize_i64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Nanousd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            text.parse().map_err(serde::de::Error::custom)
        } else {
            i64::deserialize(deserializer).map(Self)
        }
    }
}

impl JsonSchema for Nanousd {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Dollars".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "US dollars as a decimal string with two to nine decimals.",
            "type": "string",
            "pattern": r"^-?[0-9]+\.[0-9]{2,9}$",
            "examples": ["10.00"],
        })
    }
}

/// Price of one unit (a token, an image, a second, a character), in femto-dollars (10⁻¹⁵ dollars).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Rate(i64);

impl Rate {
    /// The rate of `femtousd` femto-dollars per unit.
    #[must_use]
    pub const fn from_femtousd(femtousd: i64) -> Self {
        Self(femtousd)
    }

    /// The price in femto-dollars per unit.
    #[must_use]
    pub const fn femtousd(self) -> i64 {
        self.0
    }

    /// Reads what `units` cost, in dollars: `1.25`. `None` for what is no such number, or no whole number
    /// of femto-dollars for one.
    #[must_use]
    pub fn parse(text: &str, units: u64) -> Option<Self> {
        const DECIMALS: usize = 15;
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let are_digits =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let fits = whole.len() <= DECIMALS && decimals.len() <= DECIMALS;
        if !are_digits(whole) || !are_digits(decimals) || !fits {
            return None;
        }
        let total: i128 = format!("{whole}{decimals:0<DECIMALS$}").parse().ok()?;
        let units = i128::from(units);
        // A price that one unit cannot have exactly would be charged differently from what the list
        // says.
        if total.checked_rem(units) != Some(0) {
            return None;
        }
        i64::try_from(total.checked_div(units)?).ok().map(Self)
    }

    /// Price of `units`, in dollars with all significant decimals, at least two.
    #[must_use]
    pub fn dollars(self, units: u64) -> String {
        const FEMTOUSD_PER_USD: u128 = 1_000_000_000_000_000;
        let total = Charge::default().plus(units, self).0.unsigned_abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        let fraction = format!("{:015}", total % FEMTOUSD_PER_USD);
        let significant = fraction.trim_end_matches('0').len().max(2);
        let whole = total / FEMTOUSD_PER_USD;
        format!("{sign}{whole}.{}", fraction.get(..significant).unwrap_or(&fraction))
    }
}

/// A running total in femto-dollars. It saturates instead of wrapping: a total past the range is
/// larger than any hold, so it can only be refused or capped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge(i128);

impl Charge {
    /// Adds `units` at `rate`.
    #[must_use]
    pub fn plus(self, units: u64, rate: Rate) -> Self {
        // Of the two dozen units that there are a request uses two or three.
        if units == 0 {
            return self;
        }
        // Below 2^64 times at most 2^63 is below 2^127.
        let cost = i128::from(units).wrapping_mul(i128::from(rate.0));
        Self(self.0.saturating_add(cost))
    }

    /// The total in nano-dollars, rounded up. This is the only rounding that a request sees.
    #[must_use]
    pub fn round_up(self) -> Nanousd {
        // Nearly all totals are below nine thousand dollars. Division of what is larger takes a call.
        if let Ok(total) = u64::try_from(self.0) {
            let nanousd = total.div_ceil(FEMTOUSD_PER_NANOUSD.into());
            return Nanousd(i64::try_from(nanousd).unwrap_or(i64::MAX));
        }
        // Euclidean, so that negative totals are rounded up as well and not towards zero.
        let quotient = self.0.div_euclid(FEMTOUSD_PER_NANOUSD.into());
        let remainder = self.0.rem_euclid(FEMTOUSD_PER_NANOUSD.into());
        let nanousd = quotient.saturating_add(i128::from(remainder > 0));
        Nanousd(i64::try_from(nanousd).unwrap_or(i64::MAX))
    }
}

/// A number from 0 to 1000 that prices are multiplied by, with six decimals at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Factor {
    millionths: u32,
}

impl Factor {
    const ONE: u32 = 1_000_000;
    const MAX: u32 = 1000 * Self::ONE;

    /// Reads `0.8`. `None` for what is no such number.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let are_digits =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !are_digits(whole) || !are_digits(decimals) || decimals.len() > 6 {
            return None;
        }
        let whole = whole.parse::<u32>().ok()?.checked_mul(Self::ONE)?;
        let millionths = whole.checked_add(format!("{decimals:0<6}").parse().ok()?)?;
        (millionths <= Self::MAX).then_some(Self { millionths })
    }

    /// `self` times the rate, rounded up to a femto-dollar; saturating.
    #[must_use]
    pub fn times(self, rate: Rate) -> Rate {
        let product = i128::from(rate.0).saturating_mul(i128::from(self.millionths));
        let one = i128::from(Self::ONE);
        let rounded = product.saturating_add(one.saturating_sub(1)).div_euclid(one);
        Rate(i64::try_from(rounded).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.millionths / Self::ONE, self.millionths % Self::ONE);
        let decimals = format!("{rest:06}");
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{whole}"),
            decimals => write!(f, "{whole}.{decimals}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_as_it_is_shown() {
        for (text, units, femtousd) in
            [("1.25", 1_000_000, 1_250_000_000), ("0", 1, 0), ("0.04", 1, 40_000_000_000_000)]
        {
            assert_eq!(Rate::parse(text, units), Some(Rate(femtousd)), "{text}");
        }
        assert_eq!(Rate(1_250_000_000).dollars(1_000_000), "1.25");
        for text in ["", ".5", "1.", "-1", "1e3", "0.0000000001", "99999999999999999", "1,5"] {
            assert_eq!(Rate::parse(text, 1_000_000), None, "{text}");
        }
    }

    #[test]
    fn dollars_read_and_print_the_same_value() {
        for (text, nanousd, printed) in [
            ("10.00", 10_000_000_000, "10.00"),
            ("0", 0, "0.00"),
            ("0.000000001", 1, "0.000000001"),
            ("1.5", 1_500_000_000, "1.50"),
            ("9223372036.854775807", i64::MAX, "9223372036.854775807"),
        ] {
            let amount: Nanousd = text.parse().expect(text);
            assert_eq!(amount.get(), nanousd, "{text} in nano-dollars");
            assert_eq!(amount.to_string(), printed, "{text} printed");
        }
    }

    /// Formats an amount with `core`, as a reference for the hand-written digits.
    fn formatted(amount: Nanousd) -> String {
        let magnitude = amount.0.unsigned_abs();
        let (whole, mut fraction) = (magnitude / NANOUSD_PER_USD, magnitude % NANOUSD_PER_USD);
        let mut decimals = 9_usize;
        while decimals > 2 && fraction % 10 == 0 {
            fraction /= 10;
            decimals = decimals.saturating_sub(1);
        }
        let sign = if amount.0 < 0 { "-" } else { "" };
        format!("{sign}{whole}.{fraction:0decimals$}")
    }

    #[test]
    fn amounts_of_any_length_are_written_as_they_are_formatted() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let of_any_length = |random: &mut fastrand::Rng| random.i64(..) >> random.u32(..64);
        let round = |random: &mut fastrand::Rng| {
            random.i64(-999..1_000).saturating_mul(10_i64.pow(random.u32(..13)))
        };
        let edges = [i64::MIN, i64::MIN.saturating_add(1), -1, 0, 1, i64::MAX];
        let amounts = (0..100_000).map(|turn| match turn {
            turn if turn % 2 == 0 => of_any_length(&mut random),
            _ => round(&mut random),
        });
        for amount in edges.into_iter().chain(amounts).map(Nanousd) {
            assert_eq!(amount.to_string(), formatted(amount));
            assert_eq!(amount.ascii().as_bytes(), formatted(amount).as_bytes());
        }
    }

    #[test]
    fn small_totals_are_rounded_as_large_ones_are() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let by_wide_division = |total: i128| {
            let one = i128::from(FEMTOUSD_PER_NANOUSD);
            let up = i128::from(total.rem_euclid(one) > 0);
            Nanousd(i64::try_from(total.div_euclid(one).saturating_add(up)).unwrap_or(i64::MAX))
        };
        let edge = i128::from(u64::MAX);
        let edges = [0, 1, -1, edge, edge.saturating_add(1), i128::MAX, 999_999, 1_000_000];
        let totals = (0..100_000).map(|_| random.i128(..) >> random.u32(..128));
        for total in edges.into_iter().chain(totals) {
            assert_eq!(Charge(total).round_up(), by_wide_division(total), "of {total}");
        }
    }

    #[test]
    fn what_is_not_dollars_is_refused() {
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            " 1",
            "1,0",
            "0.0000000001",
            "9223372036.854775808",
            "NaN",
        ] {
            assert!(text.parse::<Nanousd>().is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn a_rate_is_shown_with_all_of_its_decimals() {
        let rate = Rate::from_femtousd(37_500_000);
        assert_eq!(rate.dollars(1_000_000), "0.0375");
        assert_eq!(rate.dollars(1), "0.0000000375");
        assert_eq!(Rate::from_femtousd(1).dollars(1), "0.000000000000001");
        assert_eq!(Rate::from_femtousd(2_500_000_000).dollars(1_000_000), "2.50");
        assert_eq!(Rate::default().dollars(1), "0.00");
    }

    #[test]
    fn a_total_is_rounded_up_once() {
        let third = Rate::from_femtousd(333_333);
        assert_eq!(Charge::default().plus(3, third).round_up(), Nanousd::new(1));
        assert_eq!(
            Charge::default().plus(1, third).plus(1, third).plus(1, third).round_up(),
            Nanousd::new(1)
        );
        assert_eq!(Charge::default().plus(4, third).round_up(), Nanousd::new(2));
        assert_eq!(Charge::default().round_up(), Nanousd::ZERO);
        assert_eq!(
            Charge::default().plus(u64::MAX, Rate::from_femtousd(i64::MAX)).round_up(),
            Nanousd::MAX
        );
    }
}
