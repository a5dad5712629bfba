//! A duration that can be left out altogether although it has a default.

use std::time::Duration;

use super::scalar::{DurationText, Scalar, ScalarError, scalar};

/// A [`DurationText`], or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OptionalDuration(pub(super) Option<Duration>);

impl Scalar for OptionalDuration {
    const FORMAT: &'static str = "tollgate-window";
    const DESCRIPTION: &'static str = "a duration such as `250ms`, `30s`, `5m` or `1h`, or `none`";
    const NUMBER: bool = false;
    const PATTERN: &'static str = r"^(none|[0-9]+(ms|s|m|h)|.*\$\{.*)$";

    fn parse(text: &str) -> Result<Self, ScalarError> {
        if text == "none" {
            return Ok(Self(None));
        }
        DurationText::parse(text).map(|period| Self(Some(period.0)))
    }
}

scalar!(OptionalDuration);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_duration_or_none() {
        assert_eq!(OptionalDuration::parse("none").map(|window| window.0), Ok(None));
        assert_eq!(
            OptionalDuration::parse("5s").map(|window| window.0),
            Ok(Some(Duration::from_secs(5)))
        );
        for text in ["", "off", "0s", "5", "-1s"] {
            assert!(OptionalDuration::parse(text).is_err(), "{text:?}");
        }
    }
}
