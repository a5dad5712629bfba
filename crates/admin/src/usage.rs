//! Usage of an account by hour or day.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::accounts;
use super::error::{ApiError, ApiResult};
use super::request::{self, DAYS_MAX, Params, PathNames};
use super::value::Time;
use tollgate_ledger::{Grain, KeyId, UsageRow};
use tollgate_money::money::Nanousd;
use tollgate_money::price::Usage;
use tollgate_types::clock::{MS_PER_DAY, MS_PER_HOUR, UnixMs};

/// The longest time that is shown by the hour: a month.
const HOURS_MAX: u64 = 31 * 24;

/// Length of the time buckets.
#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum BucketLength {
    /// The sums of each hour of UTC.
    Hour,
    /// By the day of UTC.
    #[default]
    Day,
}

/// Query parameters of the usage.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageQuery {
    /// First hour or day of the period, as any time within it; default 30 days ago.
    from: Option<Time>,
    /// End of the period; default now.
    to: Option<Time>,
    /// Length of a period; default `day`.
    by: Option<BucketLength>,
}

/// Usage of one model by one key within an hour or a day.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "UsageRow")]
struct RowView {
    /// Beginning of the hour or day.
    begin: Time,
    key_id: KeyId,
    model: Arc<str>,
    calls: u64,
    /// Charges, in dollars.
    cost: Nanousd,
    /// Cost beyond the balance, owed by the account at that time.
    owed: Nanousd,
    /// Cost beyond both, borne by the operator.
    written_off: Nanousd,
    usage: Usage,
}

/// The usage of an account.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AccountUsage")]
pub(super) struct UsageView {
    from: Time,
    to: Time,
    by: BucketLength,
    data: Vec<RowView>,
}

/// `GET /admin/v1/accounts/{account}/usage`, oldest first.
pub(super) async fn show(
    State(state): State<AdminState>,
    PathNames(account): PathNames<String>,
    Params(query): Params<UsageQuery>,
) -> ApiResult<Json<UsageView>> {
    let account = accounts::find(&state, &account)?.id;
    let by = query.by.unwrap_or_default();
    let (grain, unit_ms, units_max) = match by {
        BucketLength::Hour => (Grain::Hour, MS_PER_HOUR, HOURS_MAX),
        BucketLength::Day => (Grain::Day, MS_PER_DAY, DAYS_MAX),
    };
    let (from, to) = request::period(query.from, query.to);
    // The ledger has sums of whole hours and days only; a part of one cannot be shown.
    let from = UnixMs(from.0 - from.0 % unit_ms);
    if from > to {
        return Err(ApiError::invalid("from", "`from` is after `to`."));
    }
    if (to.0 - from.0).div_ceil(unit_ms) > units_max {
        let message = format!("At most {HOURS_MAX} hours or {DAYS_MAX} days are shown at a time.");
        return Err(ApiError::invalid("from", message));
    }
    let rows = state.ledger.usage_lately(account, grain, from..to).await?;
    let data = rows.into_iter().map(RowView::from).collect();
    Ok(Json(UsageView { from: from.into(), to: to.into(), by, data }))
}

impl From<UsageRow> for RowView {
    fn from(row: UsageRow) -> Self {
        let UsageRow { begin, key, model, total } = row;
        Self {
            begin: begin.into(),
            key_id: key,
            model,
            calls: total.calls,
            cost: total.charged,
            owed: total.owed,
            written_off: total.written_off,
            usage: total.usage,
        }
    }
}
