//! What customers pay in the place of the list, and which prices calls were charged by.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use tollgate_money::price::{PriceRule, PriceVersion};
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::AccountId;

/// What an account pays in the place of the list: rules of its own before those of its group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountPrices {
    /// The group whose rules count where no rule of its own does.
    pub group: Option<String>,
    /// Its own rules, in no order.
    pub rules: Vec<PriceRule>,
}

impl AccountPrices {
    /// Whether the account pays the list.
    #[must_use]
    pub fn are_the_list(&self) -> bool {
        self.group.is_none() && self.rules.is_empty()
    }
}

/// Rules that several accounts share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceGroup {
    /// What it is called.
    pub name: String,
    /// Its rules, in no order.
    pub rules: Vec<PriceRule>,
    /// When it was set.
    pub at: UnixMs,
}

/// A price by which a call was charged, written down before the first of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceNote {
    /// Whose call it was.
    pub account: AccountId,
    /// The version, which entries name.
    pub version: PriceVersion,
    /// The public id of the model.
    pub model: Arc<str>,
    /// Where it comes from: `models.yaml`, or a rule of the account or of a group.
    pub source: String,
    /// What it says: JSON, as customers read it.
    pub pricing: String,
    /// When it was written down.
    pub at: UnixMs,
}
