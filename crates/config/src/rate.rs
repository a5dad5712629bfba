//! Prices and amounts as they are typed: US dollars per million units or per unit, read without a float.

use rust_decimal::Decimal;

use super::scalar::{Scalar, ScalarError, scalar};
use tollgate_money::money::{Factor, Nanousd, Rate};

/// US dollars for a million tokens or characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PerMillion(pub(super) Rate);

/// US dollars for a thousand searches or calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PerThousand(pub(super) Rate);

/// US dollars for one image or second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PerUnit(pub(super) Rate);

/// Femto-dollars in a dollar, as a power of ten.
const FEMTOUSD_EXPONENT: u32 = 15;
/// A million, as a power of ten.
const MILLION_EXPONENT: u32 = 6;
/// A thousand, as a power of ten.
const THOUSAND_EXPONENT: u32 = 3;
/// Pattern of a decimal, for editors.
const PATTERN: &str = r"^([0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|.*\$\{.*)$";

impl Scalar for PerMillion {
    const FORMAT: &'static str = "tollgate-usd-per-million";
    const DESCRIPTION: &'static str = "US dollars per million, such as `0.15`";
    const NUMBER: bool = true;
    const PATTERN: &'static str = PATTERN;

    fn parse(text: &str) -> Result<Self, ScalarError> {
        parse_price(text, FEMTOUSD_EXPONENT - MILLION_EXPONENT).map(Self)
    }
}

impl Scalar for PerThousand {
    const FORMAT: &'static str = "tollgate-usd-per-thousand";
    const DESCRIPTION: &'static str = "US dollars per thousand, such as `10.00`";
    const NUMBER: bool = true;
    const PATTERN: &'static str = PATTERN;

    fn parse(text: &str) -> Result<Self, ScalarError> {
        parse_price(text, FEMTOUSD_EXPONENT - THOUSAND_EXPONENT).map(Self)
    }
}

impl Scalar for PerUnit {
    const FORMAT: &'static str = "tollgate-usd";
    const DESCRIPTION: &'static str = "US dollars for one, such as `0.04`";
    const NUMBER: bool = true;
    const PATTERN: &'static str = PATTERN;

    fn parse(text: &str) -> Result<Self, ScalarError> {
        parse_price(text, FEMTOUSD_EXPONENT).map(Self)
    }
}

/// An amount of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dollars(pub(super) Nanousd);

impl Scalar for Dollars {
    const FORMAT: &'static str = "tollgate-usd-amount";
    const DESCRIPTION: &'static str = "US dollars, such as `5.00`";
    const NUMBER: bool = true;
    const PATTERN: &'static str = r"^([0-9]+(\.[0-9]{1,9})?|.*\$\{.*)$";

    fn parse(text: &str) -> Result<Self, ScalarError> {
        let wrong = |_| {
            let help = "write US dollars as a decimal with at most nine places: `5.00`";
            ScalarError::new("this is not an amount of money", help)
        };
        text.parse().map(Self).map_err(wrong)
    }
}

/// A number that prices are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times(pub(super) Factor);

impl Scalar for Times {
    const FORMAT: &'static str = "tollgate-factor";
    const DESCRIPTION: &'static str = "a number such as `0.8`";
    const NUMBER: bool = true;
    const PATTERN: &'static str = r"^([0-9]+(\.[0-9]{1,6})?|.*\$\{.*)$";

    fn parse(text: &str) -> Result<Self, ScalarError> {
        Factor::parse(text).map(Self).ok_or_else(|| {
            ScalarError::new("this is not a factor", "0 to 1000, with six decimals at most: `0.8`")
        })
    }
}

scalar!(Dollars, PerMillion, PerThousand, PerUnit, Times);

/// Reads dollars for 10^(15 - `exponent`) units into femto-dollars for one. Nothing is rounded: a
/// price that femto-dollars cannot hold exactly is refused.
fn parse_price(text: &str, exponent: u32) -> Result<Rate, ScalarError> {
    let wrong = || ScalarError::new("this is not a price", "write US dollars as a decimal: `0.15`");
    if text.starts_with('-') {
        return Err(ScalarError::new("a price cannot be negative", "`0` or more"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte)) {
        return Err(wrong());
    }
    let (mantissa, power) = match text.split_once(['e', 'E']) {
        Some((mantissa, power)) => (mantissa, power.parse::<i32>().map_err(|_| wrong())?),
        None => (text, 0),
    };
    let mantissa = Decimal::from_str_exact(mantissa).map_err(|_| wrong())?.normalize();
    let Ok(power) = i32::try_from(exponent).map(|exponent| exponent.saturating_add(power)) else {
        return Err(wrong());
    };
    // The price is digits · 10^(power - scale) femto-dollars.
    let digits = mantissa.mantissa();
    let scale = i32::try_from(mantissa.scale()).unwrap_or(i32::MAX);
    let shift = power.saturating_sub(scale);
    let ten_to = |exponent: i32| u32::try_from(exponent).ok().and_then(|e| 10_i128.checked_pow(e));
    let femtousd = if digits == 0 {
        Some(0)
    } else if shift >= 0 {
        ten_to(shift).and_then(|factor| digits.checked_mul(factor))
    } else {
        let divisor = ten_to(shift.saturating_neg()).filter(|divisor| digits % divisor == 0);
        let finer = ScalarError::new(
            "this price has more decimals than can be billed exactly",
            "at most nine decimals for a million, fifteen for one",
        );
        Some(digits / divisor.ok_or(finer)?)
    };
    let large = ScalarError::new("this price is too large", "at most 9,000 dollars for one");
    femtousd.and_then(|femtousd| i64::try_from(femtousd).ok()).map(Rate::from_femtousd).ok_or(large)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_exact() {
        for (text, femtousd) in [
            ("0", 0),
            ("0.0", 0),
            ("0e9", 0),
            ("3", 3_000_000_000),
            ("0.1", 100_000_000),
            ("0.15", 150_000_000),
            ("0.0375", 37_500_000),
            ("1e-3", 1_000_000),
            ("1.5E+1", 15_000_000_000),
            ("0.00000001", 10),
            ("0.000000001", 1),
            ("0.0000000010", 1),
            ("12.3456789", 12_345_678_900),
            ("9000000000", 9_000_000_000_000_000_000),
        ] {
            let rate = PerMillion::parse(text).map(|rate| rate.0.femtousd());
            assert_eq!(rate, Ok(femtousd), "{text} dollars a million");
        }
        assert_eq!(PerThousand::parse("10").map(|rate| rate.0.femtousd()), Ok(10_000_000_000_000));
        assert_eq!(PerUnit::parse("0.04").map(|rate| rate.0.femtousd()), Ok(40_000_000_000_000));
    }

    #[test]
    fn what_cannot_be_billed_exactly_is_refused() {
        for text in [
            "",
            ".",
            "-1",
            "-0",
            "1,5",
            "1_000",
            ".nan",
            ".inf",
            "NaN",
            "0x10",
            "1e",
            "e1",
            "1e1e1",
            "$1",
            "0.0000000001",
            "1e-10",
            "9300000000",
            "1e99",
            "1e99999999999",
            "+-1",
            "99999999999999999999999999999999999",
        ] {
            assert!(PerMillion::parse(text).is_err(), "{text:?} was accepted");
        }
    }
}
