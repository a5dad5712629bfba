//! Amounts of money as providers write them, without a float.

use std::fmt;
use std::str::FromStr as _;

use tollgate_money::money::Nanousd;

/// US dollars in femto-dollars (10⁻¹⁵). Negative for credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Femtousd(i128);

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Currency {
    /// US dollars, as most providers write.
    Dollars,
    /// Hundredths of US dollars.
    Cents,
}

/// Femto-dollars in a nano-dollar.
const FEMTOUSD_PER_NANOUSD: i128 = 1_000_000;
/// Femto-dollars in a dollar, as a power of ten.
const FEMTOUSD_EXPONENT: i32 = 15;
/// Largest figure: a billion dollars, so that sums over a whole file stay within an `i128`.
const FEMTOUSD_MAX: i128 = 1_000_000_000 * 10_i128.pow(15);
/// Largest number of digits in a figure; exports of floats have 17.
const DIGITS_MAX: usize = 60;

impl Femtousd {
    /// No money at all.
    pub const ZERO: Self = Self(0);

    /// The amount of `femtousd` femto-dollars.
    #[must_use]
    pub const fn new(femtousd: i128) -> Self {
        Self(femtousd)
    }

    /// The integer number of femto-dollars.
    #[must_use]
    pub const fn get(self) -> i128 {
        self.0
    }

    /// The sum; figures past the range stay at its end.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, which may be negative.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The amount without its sign.
    #[must_use]
    pub const fn magnitude(self) -> Self {
        Self(self.0.saturating_abs())
    }

    /// Reads a decimal number, which may have a sign and an exponent. What is finer than a femto-dollar
    /// is rounded to the nearest: floats in exports have such decimals, and no price does.
    pub(crate) fn parse(text: &str, currency: Currency) -> Result<Self, &'static str> {
        const SHAPE: &str = "is not a decimal number";
        const RANGE: &str = "is beyond a billion dollars";
        let (is_negative, magnitude) = match text.strip_prefix('-') {
            Some(magnitude) => (true, magnitude),
            None => (false, text),
        };
        let (mantissa, power) = match magnitude.split_once(['e', 'E']) {
            Some((mantissa, power)) => (mantissa, i32::from_str(power).map_err(|_| SHAPE)?),
            None => (magnitude, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
        let are_digits =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        // Bounded before it is parsed: a text of a million digits is no amount.
        if !are_digits(whole) || !are_digits(fraction) || mantissa.len() > DIGITS_MAX {
            return Err(SHAPE);
        }
        let fraction = fraction.trim_end_matches('0');
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Ok(Self::ZERO);
        }
        let decimals = i32::try_from(fraction.len()).map_err(|_| SHAPE)?;
        let finest = match currency {
            Currency::Dollars => FEMTOUSD_EXPONENT,
            Currency::Cents => FEMTOUSD_EXPONENT.saturating_sub(2),
        };
        let shift = finest.saturating_add(power).saturating_sub(decimals);
        let femtousd = shifted(digits, shift).ok_or(RANGE)?;
        if femtousd > FEMTOUSD_MAX {
            return Err(RANGE);
        }
        Ok(Self(if is_negative { femtousd.saturating_neg() } else { femtousd }))
    }
}

/// The digits with so many zeros behind them, or without so many of the last, rounded to the nearest.
fn shifted(digits: &str, shift: i32) -> Option<i128> {
    if let Ok(zeros) = u32::try_from(shift) {
        let number: i128 = digits.parse().ok()?;
        return number.checked_mul(10_i128.checked_pow(zeros)?);
    }
    let cut = usize::try_from(shift.unsigned_abs()).ok()?;
    let Some(kept) = digits.len().checked_sub(cut) else { return Some(0) };
    let (kept, rest) = digits.split_at_checked(kept)?;
    let number: i128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    // The first digit that is cut off decides; the sign was taken off before, so halves go away from zero.
    let is_up = rest.bytes().next().is_some_and(|digit| digit >= b'5');
    number.checked_add(i128::from(is_up))
}

impl From<Nanousd> for Femtousd {
    fn from(amount: Nanousd) -> Self {
        Self(i128::from(amount.get()).saturating_mul(FEMTOUSD_PER_NANOUSD))
    }
}

impl fmt::Display for Femtousd {
    /// Dollars with at least two decimals and at most fifteen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FEMTOUSD_PER_USD: u128 = 1_000_000_000_000_000;
        let magnitude = self.0.unsigned_abs();
        let whole = magnitude.checked_div(FEMTOUSD_PER_USD).unwrap_or_default();
        let rest = magnitude.checked_rem(FEMTOUSD_PER_USD).unwrap_or_default();
        let fraction = format!("{rest:015}");
        let decimals = fraction.trim_end_matches('0').len().max(2);
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{whole}.{}", fraction.get(..decimals).unwrap_or(&fraction))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_exactly() {
        for (text, currency, printed) in [
            ("0.5617712500000000", Currency::Dollars, "0.56177125"),
            ("123.78912", Currency::Cents, "1.2378912"),
            ("1.5e-07", Currency::Dollars, "0.00000015"),
            ("2E3", Currency::Dollars, "2000.00"),
            ("-0.25", Currency::Dollars, "-0.25"),
            ("0", Currency::Cents, "0.00"),
            ("-0.0e9", Currency::Dollars, "0.00"),
            ("0.30000000000000004", Currency::Dollars, "0.30"),
            ("0.0000000000000005", Currency::Dollars, "0.000000000000001"),
            ("1e-400", Currency::Dollars, "0.00"),
            ("1000000000", Currency::Dollars, "1000000000.00"),
        ] {
            let amount = Femtousd::parse(text, currency).expect(text);
            assert_eq!(amount.to_string(), printed, "{text}");
        }
    }

    #[test]
    fn what_is_no_figure_is_refused() {
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "+1",
            "--1",
            "1e",
            "1e+-3",
            "NaN",
            "inf",
            "1,0",
            "1000000000.01",
            "1e10",
            "1e99999999999",
            "1e400",
            "0x1",
            " 1",
        ] {
            assert!(Femtousd::parse(text, Currency::Dollars).is_err(), "{text:?} was read");
        }
        assert!(Femtousd::parse(&"9".repeat(100_000), Currency::Dollars).is_err(), "many digits");
    }
}
