//! Errors for requests that their account cannot pay, with the missing sum and the largest output limit
//! that would be served.

use std::num::NonZeroU32;

use crate::ResolvedRequest;
use crate::affordable::{OutputCost, affordable_output, cost_at};
use tollgate_money::money::Nanousd;
use tollgate_protocols::Operation;
use tollgate_protocols::output_limit;
use tollgate_types::error::{ErrorKind, GatewayError};

/// A request that costs more than its account has, with the limit that would be served.
#[derive(Clone, Copy, Debug)]
pub(super) struct InsufficientFunds {
    /// Largest cost of the request.
    amount: Nanousd,
    /// Money that the account has available.
    funds: Nanousd,
    limit: ServableLimit,
    operation: Operation,
}

/// The cost of a request that its account cannot pay.
pub(super) struct CostSummary<'a> {
    pub(super) resolved: &'a ResolvedRequest,
    /// Maximum cost of the request.
    pub(super) amount: Nanousd,
    /// The cost of each of its readings by its output limit.
    pub(super) costs: Vec<OutputCost>,
}

/// Output limit that would be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServableLimit {
    /// The request has no field that limits its output.
    NoField,
    /// This field, at this many tokens or fewer.
    AtMost(&'static str, u64),
    /// Even the lowest limit costs this much.
    TooDear(Nanousd),
}

impl InsufficientFunds {
    /// Compute the affordable limit of a request for an account with `funds`.
    #[must_use]
    pub(super) fn for_request(request: CostSummary<'_>, funds: Nanousd) -> Self {
        let CostSummary { resolved, amount, costs } = request;
        let operation = resolved.operation;
        let limit = match output_limit::field_name(operation, &resolved.model.limits) {
            None => ServableLimit::NoField,
            // The limit of the dearest reading, since any target may serve it.
            Some(field) => match affordable_output(&costs, funds) {
                Some(tokens) => ServableLimit::AtMost(field, tokens),
                None => ServableLimit::TooDear(cost_at(&costs, 1)),
            },
        };
        Self { amount, funds, limit, operation }
    }

    /// Largest output limit that would be served, in tokens per choice.
    #[must_use]
    pub(super) fn tokens(&self) -> Option<u64> {
        match self.limit {
            ServableLimit::AtMost(_, tokens) => Some(tokens),
            ServableLimit::NoField | ServableLimit::TooDear(_) => None,
        }
    }

    /// Error for a request that costs more than its account has even with nothing in flight.
    #[must_use]
    pub(super) fn insufficient(&self) -> GatewayError {
        let Self { amount, funds, .. } = self;
        let missing = amount.saturating_sub(*funds);
        let advice = match self.limit {
            ServableLimit::AtMost(field, tokens) => format!(
                "It would be served now with `{field}` of at most {}; or add ${missing}.",
                in_thousands(tokens)
            ),
            ServableLimit::TooDear(least) => format!(
                "No output limit would do: its input and a single token of output can cost \
                 ${least}. Add ${missing}."
            ),
            ServableLimit::NoField => format!("Add ${missing}{}.", self.operation.info().cheaper),
        };
        let message =
            format!("This request can cost up to ${amount}, and ${funds} is available. {advice}");
        self.limited(GatewayError::new(ErrorKind::InsufficientBalance, message))
    }

    /// Error for a request whose account has the money while requests in flight hold `held` of it.
    #[must_use]
    pub(super) fn held(&self, held: Nanousd) -> GatewayError {
        let Self { amount, funds, .. } = self;
        let advice = match self.limit {
            ServableLimit::AtMost(field, tokens) => format!(
                "It would be served now with `{field}` of at most {}. ",
                in_thousands(tokens)
            ),
            ServableLimit::TooDear(_) | ServableLimit::NoField => String::new(),
        };
        let missing = amount.saturating_sub(*funds);
        let message = format!(
            "This request can cost up to ${amount}; ${funds} is free and ${held} is held by \
             requests in flight. {advice}Try again when they have ended, or add ${missing}."
        );
        self.limited(GatewayError::new(ErrorKind::BalanceHeld, message))
    }

    /// Add the limit in machine-readable form.
    fn limited(&self, error: GatewayError) -> GatewayError {
        let tokens = self.tokens().and_then(|tokens| u32::try_from(tokens).ok());
        GatewayError { max_tokens_affordable: tokens.and_then(NonZeroU32::new), ..error }
    }
}

/// Format a number with thousands separators.
fn in_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enough(limit: ServableLimit, operation: Operation) -> InsufficientFunds {
        let (amount, funds) = (Nanousd::new(4_340_000_000), Nanousd::new(660_000_000));
        InsufficientFunds { amount, funds, limit, operation }
    }

    #[test]
    fn a_refusal_says_the_sum_and_the_limit_that_would_have_been_enough() {
        let at_most = ServableLimit::AtMost("max_tokens", 9_120);
        let error = enough(at_most, Operation::Chat).insufficient();
        assert_eq!(
            error.message,
            "This request can cost up to $4.34, and $0.66 is available. It would be served now with \
             `max_tokens` of at most 9,120; or add $3.68."
        );
        assert_eq!(error.max_tokens_affordable.map(NonZeroU32::get), Some(9_120));
        let error = enough(at_most, Operation::Chat).held(Nanousd::new(4_000_000_000));
        assert_eq!(
            error.message,
            "This request can cost up to $4.34; $0.66 is free and $4.00 is held by requests in \
             flight. It would be served now with `max_tokens` of at most 9,120. Try again when they \
             have ended, or add $3.68."
        );
        let too_dear = ServableLimit::TooDear(Nanousd::new(900_000_000));
        let error = enough(too_dear, Operation::Chat).insufficient();
        assert!(
            error.message.ends_with(
                "No output limit would do: its input and a single token of output can cost $0.90. \
                 Add $3.68."
            ),
            "{error}"
        );
        assert_eq!(error.max_tokens_affordable, None);
        let error = enough(ServableLimit::NoField, Operation::Transcription).insufficient();
        assert!(error.message.ends_with("available. Add $3.68, or send shorter audio."), "{error}");
    }

    #[test]
    fn numbers_are_written_in_thousands() {
        let written = [1, 999, 1_000, 12_345, 123_456, 1_234_567].map(in_thousands);
        assert_eq!(written, ["1", "999", "1,000", "12,345", "123,456", "1,234,567"]);
    }
}
