//! Charges in the columns of the FinOps Open Cost and Usage Specification (FOCUS) 1.0: a row for each
//! settled call, and one for each refund.
//!
//! A settlement names its hold alone, so what the hold was made for is kept while it is open, and the
//! names of accounts and keys as they are at that place of the journal.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;

use serde_json::json;
use time::{Date, Month, OffsetDateTime};

use crate::reading::export::chosen;
use crate::records::id_map::IdMap;
use crate::records::record::Record;
use crate::records::reservation::Reservation;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, KeyId, Seq};

/// Provider, publisher and biller in FOCUS rows: the gateway has no other name of its operator.
const PROVIDER: &str = "Tollgate";
/// Consumed unit in FOCUS rows: the ledger has one price per call, whatever the call used.
const UNIT: &str = "Requests";
const MS_PER_SECOND: u64 = 1_000;

/// State that rows need from earlier records.
#[derive(Debug, Default)]
pub(super) struct Focus {
    holds: IdMap<HoldId, Arc<Reservation>>,
    accounts: IdMap<AccountId, String>,
    keys: IdMap<KeyId, String>,
}

/// A charge, or what was given back of one.
struct FocusRow<'a> {
    seq: Seq,
    account: AccountId,
    account_name: Option<&'a str>,
    key_name: Option<&'a str>,
    hold: Option<HoldId>,
    reservation: Option<&'a Reservation>,
    amount: Nanousd,
    /// A word for what happened.
    kind: &'static str,
    refund: Option<&'a str>,
    usage: Option<(Usage, UsageSource)>,
    at: UnixMs,
}

impl Focus {
    /// The names of the columns.
    pub(super) fn head() -> Vec<String> {
        FocusRow::new(0, AccountId::OPERATOR, UnixMs(0))
            .cells()
            .into_iter()
            .map(|(name, _)| name.to_owned())
            .collect()
    }

    /// The cells of the record at `seq`, if it charges or gives back anything.
    pub(super) fn cells(&mut self, seq: Seq, record: &Record) -> Option<Vec<String>> {
        let reservation = self.take(seq, record);
        let row = self.row(seq, record, reservation.as_deref())?;
        Some(row.cells().into_iter().map(|(_, cell)| cell).collect())
    }

    /// Notes what later rows need, and gives what the hold was made for that ends here.
    fn take(&mut self, seq: Seq, record: &Record) -> Option<Arc<Reservation>> {
        match record {
            Record::AccountCreated { account, name, .. }
            | Record::AccountRenamed { account, name, .. } => {
                self.accounts.insert(*account, name.clone());
            }
            Record::KeyCreated(key) | Record::KeyUpdated(key) => {
                self.keys.insert(key.id, key.name.clone());
            }
            Record::Reserved(reservation) => {
                self.holds.insert(HoldId::from_number(seq), Arc::clone(reservation));
            }
            Record::Extended { .. } => {}
            record => return record.open_hold().and_then(|hold| self.holds.remove(&hold)),
        }
        None
    }

    fn row<'a>(
        &'a self,
        seq: Seq,
        record: &'a Record,
        reservation: Option<&'a Reservation>,
    ) -> Option<FocusRow<'a>> {
        let account = record.account();
        let row = FocusRow {
            account_name: self.accounts.get(&account).map(String::as_str),
            key_name: reservation.and_then(|made| self.keys.get(&made.key)).map(String::as_str),
            hold: record.open_hold(),
            reservation,
            ..FocusRow::new(seq, account, record.at())
        };
        match record {
            Record::Refunded { id, hold, amount, .. } => Some(FocusRow {
                hold: Some(*hold),
                amount: Nanousd::ZERO.checked_sub(*amount)?,
                kind: "refund",
                refund: Some(id),
                ..row
            }),
            Record::Recovered { charged, .. } => {
                Some(FocusRow { amount: *charged, kind: "in_doubt", ..row })
            }
            record => {
                let charge = record.charge()?;
                // The debt was within the range when it was written down.
                let amount = charge.charged.saturating_add(charge.owed);
                let usage = Some((charge.usage, charge.source));
                Some(FocusRow { amount, kind: "settlement", usage, ..row })
            }
        }
    }
}

impl FocusRow<'_> {
    /// A row that charges nothing.
    fn new(seq: Seq, account: AccountId, at: UnixMs) -> Self {
        Self {
            seq,
            account,
            account_name: None,
            key_name: None,
            hold: None,
            reservation: None,
            amount: Nanousd::ZERO,
            kind: "",
            refund: None,
            usage: None,
            at,
        }
    }

    /// Every column with its cell.
    fn cells(&self) -> Vec<(&'static str, String)> {
        let mut cells = self.billed();
        cells.extend(self.charged());
        cells.extend(self.priced());
        cells.extend(self.used());
        cells.extend(self.noted());
        cells
    }

    /// Columns of the biller, the customer and the billing period.
    fn billed(&self) -> Vec<(&'static str, String)> {
        let (begin, end) = month(self.at);
        vec![
            ("BillingAccountId", AccountId::OPERATOR.to_string()),
            ("BillingAccountName", PROVIDER.to_owned()),
            ("BillingCurrency", "USD".to_owned()),
            ("BillingPeriodStart", begin.to_rfc3339()),
            ("BillingPeriodEnd", end.to_rfc3339()),
            ("InvoiceIssuerName", PROVIDER.to_owned()),
            ("ProviderName", PROVIDER.to_owned()),
            ("PublisherName", PROVIDER.to_owned()),
            ("SubAccountId", self.account.to_string()),
            ("SubAccountName", chosen(&text(self.account_name))),
        ]
    }

    /// Columns of the charge and its period: from the hold to the settlement, within the month.
    fn charged(&self) -> Vec<(&'static str, String)> {
        let is_refund = self.refund.is_some();
        let amount = self.amount.to_string();
        let (billed_from, _) = month(self.at);
        let begin = second(self.reservation.map_or(self.at, |made| made.at)).max(billed_from);
        let end = UnixMs(second(self.at).0.saturating_add(MS_PER_SECOND));
        let category = if is_refund { "Credit" } else { "Usage" };
        let frequency = if is_refund { "One-Time" } else { "Usage-Based" };
        vec![
            ("BilledCost", amount.clone()),
            ("EffectiveCost", amount.clone()),
            ("ListCost", amount.clone()),
            ("ContractedCost", amount),
            ("ChargeCategory", category.to_owned()),
            ("ChargeClass", String::new()),
            ("ChargeDescription", self.description()),
            ("ChargeFrequency", frequency.to_owned()),
            ("ChargePeriodStart", begin.to_rfc3339()),
            ("ChargePeriodEnd", end.to_rfc3339()),
        ]
    }

    fn description(&self) -> String {
        let model = self.reservation.map_or("a model", |made| &made.model);
        match (self.refund, self.kind) {
            (Some(id), _) => format!("Refund {id}"),
            (None, "in_doubt") => format!("Call of {model} that a crash has left in doubt"),
            (None, _) => format!("Call of {model}"),
        }
    }

    /// Quantities and unit prices. A refund has none.
    fn priced(&self) -> Vec<(&'static str, String)> {
        let is_refund = self.refund.is_some();
        let of_usage = |cell: &str| if is_refund { String::new() } else { cell.to_owned() };
        let amount = of_usage(&self.amount.to_string());
        vec![
            ("ConsumedQuantity", of_usage("1")),
            ("ConsumedUnit", of_usage(UNIT)),
            ("PricingQuantity", of_usage("1")),
            ("PricingUnit", of_usage(UNIT)),
            ("PricingCategory", of_usage("Standard")),
            ("ListUnitPrice", amount.clone()),
            ("ContractedUnitPrice", amount),
            ("CommitmentDiscountCategory", String::new()),
            ("CommitmentDiscountId", String::new()),
            ("CommitmentDiscountName", String::new()),
            ("CommitmentDiscountStatus", String::new()),
            ("CommitmentDiscountType", String::new()),
        ]
    }

    /// Columns of the key and the model.
    fn used(&self) -> Vec<(&'static str, String)> {
        let key = self.reservation.map(|made| made.key.to_string());
        let model = text(self.reservation.map(|made| &*made.model));
        vec![
            ("AvailabilityZone", String::new()),
            ("RegionId", String::new()),
            ("RegionName", String::new()),
            ("ResourceType", text(key.as_ref().map(|_| "API key"))),
            ("ResourceId", key.unwrap_or_default()),
            ("ResourceName", chosen(&text(self.key_name))),
            ("ServiceCategory", "AI and Machine Learning".to_owned()),
            ("ServiceName", "AI gateway".to_owned()),
            ("SkuId", model.clone()),
            ("SkuPriceId", model),
        ]
    }

    /// Tags, and columns that are not of the specification: their names begin with `x_`.
    fn noted(&self) -> Vec<(&'static str, String)> {
        let mut tags = json!({"hold": self.hold.map(|hold| hold.to_string())});
        if let Some(made) = self.reservation {
            tags["request_id"] = made.request.to_string().into();
        }
        let usage = self.usage.and_then(|(usage, _)| serde_json::to_string(&usage).ok());
        let source = self.usage.and_then(|(_, source)| serde_json::to_value(source).ok());
        let source = source.and_then(|source| source.as_str().map(ToOwned::to_owned));
        vec![
            ("Tags", tags.to_string()),
            ("x_Seq", self.seq.to_string()),
            ("x_Kind", self.kind.to_owned()),
            ("x_Usage", usage.unwrap_or_default()),
            ("x_UsageSource", source.unwrap_or_default()),
        ]
    }
}

fn text(cell: Option<&str>) -> String {
    cell.unwrap_or_default().to_owned()
}

/// The beginning of the second that `at` is in.
fn second(at: UnixMs) -> UnixMs {
    UnixMs(at.0.saturating_sub(at.0.checked_rem(MS_PER_SECOND).unwrap_or_default()))
}

/// The month of UTC that `at` is in: its beginning, and that of the next.
fn month(at: UnixMs) -> (UnixMs, UnixMs) {
    let seconds = i64::try_from(at.0.checked_div(MS_PER_SECOND).unwrap_or_default());
    let time = OffsetDateTime::from_unix_timestamp(seconds.unwrap_or_default());
    let date = time.unwrap_or(OffsetDateTime::UNIX_EPOCH).date();
    let (year, this) = (date.year(), date.month());
    let next_year = if this == Month::December { year.saturating_add(1) } else { year };
    (first_day(year, this), first_day(next_year, this.next()))
}

fn first_day(year: i32, month: Month) -> UnixMs {
    let date = Date::from_calendar_date(year, month, 1).unwrap_or(Date::MAX);
    let seconds = u64::try_from(date.midnight().assume_utc().unix_timestamp());
    UnixMs(seconds.unwrap_or_default().saturating_mul(MS_PER_SECOND))
}
