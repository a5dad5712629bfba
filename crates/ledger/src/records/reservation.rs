//! Money set aside for a call: the reservation as the journal has it, and the hold that is open on it.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use tollgate_money::money::Nanousd;
use tollgate_money::price::PriceVersion;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, KeyId, RequestId};

/// Money to hold for one call, as requested.
///
/// The price is written behind the model's id, as [`CalledModel`] says: journals from before there were
/// versions of prices have the id alone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WrittenReservation")]
pub struct Reservation {
    /// Account that pays.
    pub account: AccountId,
    /// Key of the call.
    pub key: KeyId,
    /// The public id of the model that is called.
    pub model: Arc<str>,
    /// The price that it is charged by; `None` of calls from before there were versions.
    pub price: Option<PriceVersion>,
    /// Request that made the call.
    pub request: RequestId,
    /// Maximum cost of the call.
    pub amount: Nanousd,
    /// Minimum cost once an upstream has begun to process it; at most `amount`.
    pub floor: Nanousd,
    /// Time of the hold.
    pub at: UnixMs,
}

/// Every call writes two: one in the journal, and one in the line of its statement.
impl Serialize for Reservation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { account, key, model, price, request, amount, floor, at } = self;
        let mut written = serializer.serialize_struct("Reservation", 7)?;
        written.serialize_field("account", account)?;
        written.serialize_field("key", key)?;
        written.serialize_field("model", &CalledModel(model, *price))?;
        written.serialize_field("request", request)?;
        written.serialize_field("amount", amount)?;
        written.serialize_field("floor", floor)?;
        written.serialize_field("at", at)?;
        written.end()
    }
}

/// A reservation in its journal form.
#[derive(Deserialize)]
struct WrittenReservation {
    account: AccountId,
    key: KeyId,
    model: CalledModel<Arc<str>>,
    request: RequestId,
    amount: Nanousd,
    floor: Nanousd,
    at: UnixMs,
}

/// A model, and the version of the price at which its call is charged.
///
/// It is written as one text: the id, and behind it the characters of the version, of which the first is
/// a control character. Ids have none, so an id alone is one of a journal from before there were versions.
struct CalledModel<T>(T, Option<PriceVersion>);

impl Serialize for CalledModel<&Arc<str>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self(id, None) => serializer.serialize_str(id),
            Self(id, Some(price)) => {
                let characters = price.characters();
                let price = str::from_utf8(&characters).map_err(serde::ser::Error::custom)?;
                serializer.collect_str(&format_args!("{id}{price}"))
            }
        }
    }
}

impl<'de> Deserialize<'de> for CalledModel<Arc<str>> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // From the end: an id of any length stands before it.
        let split = text.len().checked_sub(PriceVersion::CHARACTERS);
        let split = split.and_then(|at| text.split_at_checked(at));
        let priced = split.and_then(|(id, price)| {
            let price = PriceVersion::from_characters(price.as_bytes().try_into().ok()?)?;
            Some(Self(id.into(), Some(price)))
        });
        Ok(priced.unwrap_or_else(|| Self(text.into(), None)))
    }
}

impl From<WrittenReservation> for Reservation {
    fn from(written: WrittenReservation) -> Self {
        let WrittenReservation { account, key, model, request, amount, floor, at } = written;
        let CalledModel(model, price) = model;
        Self { account, key, model, price, request, amount, floor, at }
    }
}

/// An open hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenHold {
    /// Reservation that the hold covers.
    pub reservation: Arc<Reservation>,
    /// Amount set aside, extensions included.
    pub amount: Nanousd,
}
