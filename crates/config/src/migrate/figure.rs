//! Figures of LiteLLM's as ours: prices and times, without a float.

use rust_decimal::Decimal;

/// Decimals of a price per million that can be billed exactly.
const PRICE_DECIMALS_MAX: u32 = 9;
/// The longest time that a configuration takes, in milliseconds: a day.
const MS_MAX: i64 = 24 * 60 * 60 * 1000;

/// US dollars for one token as US dollars for a million: `0.00000015` is `0.15`.
///
/// # Errors
/// Why it cannot be used.
pub(super) fn per_million(text: &str) -> Result<String, &'static str> {
    let price = decimal(text)?.checked_mul(Decimal::from(1_000_000)).ok_or("it is too large")?;
    checked(price, PRICE_DECIMALS_MAX)
}

/// US dollars for one as US dollars for a thousand: `0.002` is `2`.
///
/// # Errors
/// Why it cannot be used.
pub(super) fn per_thousand(text: &str) -> Result<String, &'static str> {
    /// Decimals of a price of a thousand that can be billed exactly.
    const DECIMALS_MAX: u32 = 12;
    let price = decimal(text)?.checked_mul(Decimal::from(1000)).ok_or("it is too large")?;
    checked(price, DECIMALS_MAX)
}

/// US dollars for one.
///
/// # Errors
/// Why it cannot be used.
pub(super) fn per_unit(text: &str) -> Result<String, &'static str> {
    /// Decimals of a price of one that can be billed exactly.
    const DECIMALS_MAX: u32 = 15;
    checked(decimal(text)?, DECIMALS_MAX)
}

/// Seconds, such as `600` or `0.5`, as a duration: `600s`, `500ms`.
pub(super) fn duration(seconds: &str) -> Option<String> {
    let ms = decimal(seconds).ok()?.checked_mul(Decimal::from(1000))?.normalize();
    let ms: i64 = Some(ms).filter(Decimal::is_integer)?.try_into().ok()?;
    match ms {
        1..=MS_MAX if ms % 1000 == 0 => Some(format!("{}s", ms / 1000)),
        1..=MS_MAX => Some(format!("{ms}ms")),
        _ => None,
    }
}

/// A whole number within a range.
pub(super) fn whole(text: &str, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
    let number: u64 = decimal(text).ok()?.normalize().try_into().ok()?;
    // A fraction would be cut.
    (Decimal::from(number) == decimal(text).ok()?).then_some(number).filter(|n| range.contains(n))
}

fn decimal(text: &str) -> Result<Decimal, &'static str> {
    let plain = text.replace('_', "");
    let parsed = if plain.contains(['e', 'E']) {
        Decimal::from_scientific(&plain)
    } else {
        Decimal::from_str_exact(&plain)
    };
    parsed.map_err(|_| "it is not a number that can be read exactly")
}

fn checked(price: Decimal, decimals_max: u32) -> Result<String, &'static str> {
    let price = price.normalize();
    if price.is_sign_negative() && !price.is_zero() {
        return Err("it is negative");
    }
    if price.scale() > decimals_max {
        return Err("it has more decimals than can be billed exactly");
    }
    Ok(price.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_moved_by_six_places_and_nothing_is_lost() {
        for (token, million) in [
            ("0.00000015", "0.15"),
            ("1.5e-7", "0.15"),
            ("3e-06", "3"),
            ("0.000010", "10"),
            ("0", "0"),
            ("0.0", "0"),
            ("2.5E-6", "2.5"),
            ("0.000000000000001", "0.000000001"),
            ("7.5e-08", "0.075"),
        ] {
            assert_eq!(per_million(token).as_deref(), Ok(million), "{token} dollars a token");
        }
        for token in ["", "-1", "x", "1e-16", "0.0000000000000001", "NaN", "1/3"] {
            assert!(per_million(token).is_err(), "{token:?}");
        }
        assert_eq!(per_unit("0.04").as_deref(), Ok("0.04"));
    }

    #[test]
    fn times_are_exact_or_left_out() {
        for (seconds, duration) in [
            ("600", Some("600s")),
            ("0.5", Some("500ms")),
            ("30.0", Some("30s")),
            ("0.0001", None),
            ("0", None),
            ("86401", None),
            ("None", None),
        ] {
            assert_eq!(super::duration(seconds).as_deref(), duration, "{seconds}");
        }
        assert_eq!(whole("480", 1..=1000), Some(480));
        assert_eq!(whole("1.5", 1..=1000), None);
    }
}
