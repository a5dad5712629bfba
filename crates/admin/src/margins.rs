//! Revenue and cost of calls by day, account, model and upstream.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::error::{ApiError, ApiResult};
use super::request::{self, DAYS_MAX, Params};
use super::value::Time;
use tollgate_ledger::{AccountId, MarginCell, MarginTotal};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::{MS_PER_DAY, UnixMs};

/// Grouping of margins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum MarginBy {
    /// The sums of each day of UTC.
    Day,
    /// The sums of each account.
    Account,
    /// The sums of each model.
    Model,
    /// The sums of each upstream that answered.
    Upstream,
}

/// Query parameters of the margins.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MarginQuery {
    /// First day of the period, as any time within it; default 30 days ago.
    from: Option<Time>,
    /// Last day of the period, inclusive, as any time within it; default today.
    to: Option<Time>,
    /// Grouping; when left out, each combination of day, account, model and upstream is a row.
    by: Option<MarginBy>,
}

/// Revenue and cost of some calls.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MarginRow")]
pub(super) struct MarginRow {
    /// Beginning of the day; `null` if the row covers all days.
    pub(super) day: Option<Time>,
    pub(super) account_id: Option<AccountId>,
    pub(super) model: Option<Arc<str>>,
    pub(super) upstream: Option<Arc<str>>,
    /// Calls whose cost is known.
    pub(super) calls: u64,
    /// Charges to customers, debts included.
    pub(super) charged: Nanousd,
    /// Cost to the operator.
    pub(super) cost: Nanousd,
    /// `charged` minus `cost`; negative for a loss.
    pub(super) margin: Nanousd,
    /// Maximum cost of attempts that no customer paid for; not part of `cost`.
    pub(super) unpaid: Nanousd,
}

/// Revenue and cost of calls.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Margins")]
pub(super) struct MarginsView {
    from: Time,
    to: Time,
    by: Option<MarginBy>,
    data: Vec<MarginRow>,
}

/// `GET /admin/v1/margins`
pub(super) async fn list(
    State(state): State<AdminState>,
    Params(MarginQuery { from, to, by }): Params<MarginQuery>,
) -> ApiResult<Json<MarginsView>> {
    let (from, to) = request::period(from, to);
    if from > to {
        return Err(ApiError::invalid("from", "`from` is after `to`."));
    }
    let day = |at: UnixMs| u32::try_from(at.0 / MS_PER_DAY).unwrap_or(u32::MAX);
    // The day of `to` is included; a range that ends today shows the calls of today.
    let days = day(from)..day(to).saturating_add(1);
    if u64::from(days.end - days.start) > DAYS_MAX {
        let message = format!("At most {DAYS_MAX} days are shown at a time.");
        return Err(ApiError::invalid("from", message));
    }
    let rows = state.ledger.margins(days).await?;
    Ok(Json(MarginsView { from: from.into(), to: to.into(), by, data: summed(rows, by) }))
}

/// The rows added up, in the order of days and names.
pub(super) fn summed(rows: Vec<(MarginCell, MarginTotal)>, by: Option<MarginBy>) -> Vec<MarginRow> {
    let mut sums: BTreeMap<_, MarginTotal> = BTreeMap::new();
    for (cell, total) in rows {
        let MarginCell { day, account, model, upstream } = cell;
        let key = match by {
            None => (Some(day), Some(account), Some(model), Some(upstream)),
            Some(MarginBy::Day) => (Some(day), None, None, None),
            Some(MarginBy::Account) => (None, Some(account), None, None),
            Some(MarginBy::Model) => (None, None, Some(model), None),
            Some(MarginBy::Upstream) => (None, None, None, Some(upstream)),
        };
        sums.entry(key).or_default().add(&total);
    }
    let row = |((day, account_id, model, upstream), total): (_, MarginTotal)| {
        let day: Option<u32> = day;
        let MarginTotal { calls, charged, cost, unpaid } = total;
        MarginRow {
            day: day.map(|day| UnixMs(u64::from(day) * MS_PER_DAY).into()),
            account_id,
            model,
            upstream,
            calls,
            charged,
            cost,
            margin: charged.checked_sub(cost).unwrap_or_default(),
            unpaid,
        }
    };
    sums.into_iter().map(row).collect()
}
