//! Possible losses of the operator, as recorded in the journal, and their sums. A loss is a call
//! that an upstream may bill and no customer pays.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, KeyId, RequestId, Seq};

/// The longest word for a cause, in bytes.
pub const CAUSE_BYTES_MAX: usize = 32;

/// Cause of a possible loss. The journal stores it as a word, so later versions can add others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossCause {
    /// The same work was sent again, where the operator has allowed it, and may have been done twice.
    Retry,
    /// The upstream broke after it had the request, and nothing of use came of it.
    ConnectionLost,
    /// The upstream has not said what it used, and the customer was charged less than it can have been.
    Untold,
    /// The upstream did the work, and its answer could not be given to the customer.
    Undelivered,
    /// The upstream has used what has no price, such as another tier.
    Unpriced,
}

impl LossCause {
    /// All causes of a loss.
    pub const ALL: [Self; 5] =
        [Self::Retry, Self::ConnectionLost, Self::Untold, Self::Undelivered, Self::Unpriced];

    /// Name of the cause.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::ConnectionLost => "connection_lost",
            Self::Untold => "untold",
            Self::Undelivered => "undelivered",
            Self::Unpriced => "unpriced",
        }
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A loss in its journal form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossRecord {
    /// Account of the call.
    pub account: AccountId,
    /// Key of the call.
    pub key: KeyId,
    /// The public id of the model that was called.
    pub model: Arc<str>,
    /// Upstream that may bill for it.
    pub upstream: String,
    /// Request that made the call.
    pub request: RequestId,
    /// Cause: a word of at most [`CAUSE_BYTES_MAX`] bytes.
    pub cause: String,
    /// Upper bound of the loss; above zero.
    pub amount: Nanousd,
    /// Time of the loss.
    pub at: UnixMs,
}

/// A sum of losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LossSum {
    /// Number of losses.
    pub count: u64,
    /// Upper bound of the sum.
    pub amount: Nanousd,
}

/// Losses by cause.
pub type LossSums = BTreeMap<String, LossSum>;

/// A loss with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedLoss {
    /// Position in the journal.
    pub seq: Seq,
    /// The recorded loss.
    pub lost: Arc<LossRecord>,
}

/// Losses of the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossReport {
    /// Sums of the losses by cause.
    pub sums: LossSums,
    /// The most recent losses, newest first.
    pub last: Vec<ListedLoss>,
}

impl LossSum {
    /// Adds `other`. Figures past the range stay at its end: they are statistics, not balances.
    pub fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.amount = self.amount.saturating_add(other.amount);
    }
}

impl LossRecord {
    /// Adds it to the sums by cause.
    pub(crate) fn add_to(&self, sums: &mut LossSums) {
        let one = LossSum { count: 1, amount: self.amount };
        match sums.get_mut(&self.cause) {
            Some(sum) => sum.add(one),
            None => {
                sums.insert(self.cause.clone(), one);
            }
        }
    }

    /// True if the amount is above zero and the cause is a word.
    pub(crate) fn is_sound(&self) -> bool {
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        self.amount > Nanousd::ZERO
            && (1..=CAUSE_BYTES_MAX).contains(&self.cause.len())
            && self.cause.bytes().all(is_word)
    }
}
