//! Figures of price lists as rates, without a float.

use thiserror::Error;
use tollgate_money::money::Rate;

/// Number of units that a figure is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitScale {
    /// Per token, character, image, second, search or request.
    One,
    /// A thousand searches or calls.
    Thousand,
    /// A million tokens or characters.
    Million,
}

impl UnitScale {
    /// The number of units, as a power of ten.
    const fn exponent(self) -> i32 {
        match self {
            Self::One => 0,
            Self::Thousand => 3,
            Self::Million => 6,
        }
    }
}

/// Reason why a figure is not a valid rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum FigureError {
    /// The text is not a number.
    #[error("it is not a number")]
    NotANumber,
    /// Variable price, which some lists write as -1.
    #[error("it is negative")]
    Negative,
    /// Femto-dollars cannot hold it.
    #[error("it has more decimals than can be billed exactly")]
    TooFine,
    /// Above the largest price that can be configured.
    #[error("it is too large")]
    TooLarge,
}

/// Femto-dollars in a dollar, as a power of ten.
const FEMTOUSD_EXPONENT: i32 = 15;
/// Number of digits that always fit an `i128`.
const DIGITS_MAX: usize = 38;

/// Reads US dollars for so many units as the rate of one: `1.5e-07` for one is 0.15 for a million.
/// Nothing is rounded.
///
/// # Errors
/// When the text is no number, or none that can be billed exactly.
pub(crate) fn rate(text: &str, per: UnitScale) -> Result<Rate, FigureError> {
    let (sign, magnitude) = match text.strip_prefix('-') {
        Some(magnitude) => (true, magnitude),
        None => (false, text),
    };
    let (mantissa, power) = match magnitude.split_once(['e', 'E']) {
        Some((mantissa, power)) => (mantissa, exponent(power)?),
        None => (magnitude, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) {
        return Err(FigureError::NotANumber);
    }
    // Trailing zeros would count as decimals that are too fine.
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(Rate::default());
    }
    // After the check for zero: `-0` is no negative price.
    if sign {
        return Err(FigureError::Negative);
    }
    // Without the zeros at the end, which say no more than the power does.
    let significant = digits.trim_end_matches('0');
    let zeros = length(digits).saturating_sub(length(significant));
    if significant.len() > DIGITS_MAX {
        return Err(FigureError::TooFine);
    }
    let number: i128 = significant.parse().map_err(|_| FigureError::TooLarge)?;
    let shift = FEMTOUSD_EXPONENT
        .saturating_sub(per.exponent())
        .saturating_add(power)
        .saturating_add(zeros)
        .saturating_sub(length(fraction));
    // It ends with another digit than zero: every place to the right of a femto-dollar is one too many.
    let shift = u32::try_from(shift).map_err(|_| FigureError::TooFine)?;
    let femtousd = 10_i128.checked_pow(shift).and_then(|factor| number.checked_mul(factor));
    let femtousd = femtousd.and_then(|femtousd| i64::try_from(femtousd).ok());
    femtousd.map(Rate::from_femtousd).ok_or(FigureError::TooLarge)
}

/// Reads a whole number of tokens: `128000`, `1e6`, `256000.0`. `None` for anything else, and for zero,
/// by which lists mean that they do not know.
pub(crate) fn tokens(text: &str) -> Option<u64> {
    // A dollar a million is a thousand million femto-dollars for one, whatever it is that is counted.
    const PER_MILLION: i64 = 1_000_000_000;
    let femtousd = rate(text, UnitScale::Million).ok()?.femtousd();
    let is_whole = femtousd.checked_rem(PER_MILLION) == Some(0);
    let count = u64::try_from(femtousd.checked_div(PER_MILLION)?).ok()?;
    (is_whole && count > 0).then_some(count)
}

fn exponent(text: &str) -> Result<i32, FigureError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(FigureError::NotANumber);
    }
    text.parse().map_err(|_| FigureError::TooLarge)
}

fn length(digits: &str) -> i32 {
    i32::try_from(digits.len()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_exact() {
        for (text, per, femtousd) in [
            ("1.5e-07", UnitScale::One, 150_000_000),
            ("0.00000015", UnitScale::One, 150_000_000),
            ("0.15", UnitScale::Million, 150_000_000),
            ("2.5", UnitScale::Million, 2_500_000_000),
            ("3e-06", UnitScale::One, 3_000_000_000),
            ("1E+1", UnitScale::Million, 10_000_000_000),
            ("10", UnitScale::Thousand, 10_000_000_000_000),
            ("0.0375", UnitScale::Million, 37_500_000),
            ("0.000000001", UnitScale::Million, 1),
            ("1e-15", UnitScale::One, 1),
            ("100e-17", UnitScale::One, 1),
            ("0.0000000010000", UnitScale::Million, 1),
            ("0", UnitScale::One, 0),
            ("-0.0", UnitScale::One, 0),
            ("0e99999", UnitScale::One, 0),
            ("9000", UnitScale::One, 9_000_000_000_000_000_000),
        ] {
            assert_eq!(rate(text, per).map(Rate::femtousd), Ok(femtousd), "{text} for {per:?}");
        }
    }

    #[test]
    fn what_is_no_exact_rate_is_refused() {
        for (text, error) in [
            ("", FigureError::NotANumber),
            (".5", FigureError::NotANumber),
            ("1.", FigureError::NotANumber),
            ("1e", FigureError::NotANumber),
            ("1e+-1", FigureError::NotANumber),
            ("+1", FigureError::NotANumber),
            ("two dollars", FigureError::NotANumber),
            ("0.30 USD", FigureError::NotANumber),
            ("NaN", FigureError::NotANumber),
            ("-1", FigureError::Negative),
            ("1e-16", FigureError::TooFine),
            ("0.00000008333333333333334", FigureError::TooFine),
            ("1.2000000000000002e-07", FigureError::TooFine),
            ("10000", FigureError::TooLarge),
            ("1e99", FigureError::TooLarge),
            ("1e99999999999", FigureError::TooLarge),
        ] {
            assert_eq!(rate(text, UnitScale::One), Err(error), "{text:?}");
        }
    }

    #[test]
    fn tokens_are_positive_whole_numbers() {
        for (text, count) in [
            ("128000", Some(128_000)),
            ("256000.0", Some(256_000)),
            ("1e6", Some(1_000_000)),
            ("0", None),
            ("-1", None),
            ("0.5", None),
            ("max input tokens", None),
        ] {
            assert_eq!(tokens(text), count, "{text:?}");
        }
    }
}
