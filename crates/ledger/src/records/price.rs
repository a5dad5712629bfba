//! Customers' prices that replace the list, and the prices that calls were charged by.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use tollgate_money::price::{PriceRule, PriceVersion};
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::AccountId;

/// Price rules of an account; its own come before those of its group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountPrices {
    /// The group whose rules count where no rule of its own does.
    pub group: Option<String>,
    /// Rules of the account, in no order.
    pub rules: Vec<PriceRule>,
}

impl AccountPrices {
    /// True if the account pays list prices.
    #[must_use]
    pub fn are_the_list(&self) -> bool {
        self.group.is_none() && self.rules.is_empty()
    }
}

/// Rules that several accounts share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceGroup {
    /// Name of the group.
    pub name: String,
    /// Its rules, in no order.
    pub rules: Vec<PriceRule>,
    /// Time of the change.
    pub at: UnixMs,
}

/// A price, recorded before the first call that is charged at it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceNote {
    /// Account of the call.
    pub account: AccountId,
    /// The version, which entries name.
    pub version: PriceVersion,
    /// The public id of the model.
    pub model: Arc<str>,
    /// Source of the price: `models.yaml`, or a rule of the account or of a group.
    pub source: String,
    /// The prices in JSON, as customers read them.
    pub pricing: String,
    /// Time of the record.
    pub at: UnixMs,
}
