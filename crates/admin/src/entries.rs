//! Entries of an account's statement, and unresolved calls after a crash.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::accounts;
use super::error::ApiResult;
use super::request::{ListView, PAGE_DEFAULT, PAGE_MAX, PageQuery, Params, PathNames, check_limit};
use super::value::Time;
use tollgate_ledger::{
    AccountId, EntryKind, HoldId, InDoubt, KeyId, RequestId, Seq, StatementCall, StatementEntry,
};
use tollgate_money::money::Nanousd;
use tollgate_money::price::PriceVersion;
use tollgate_web_kit::cut_page;

/// One entry of a statement; its fields depend on `kind`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Entry")]
struct EntryView {
    seq: Seq,
    at: Time,
    #[serde(flatten)]
    kind: EntryKind,
    call: Option<CallView>,
}

/// The call that an entry belongs to.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Call")]
struct CallView {
    hold: HoldId,
    request_id: RequestId,
    key_id: KeyId,
    model: Arc<str>,
    /// Version of the price at which the call was charged; `null` for calls older than price versions.
    price: Option<PriceVersion>,
    held: Nanousd,
}

/// A call that was in flight during a crash.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "HoldInDoubt")]
pub(super) struct InDoubtView {
    account_id: AccountId,
    call: CallView,
    charged: Nanousd,
    reserved_at: Time,
    resolved_at: Time,
}

impl From<StatementEntry> for EntryView {
    fn from(entry: StatementEntry) -> Self {
        Self {
            seq: entry.seq,
            at: entry.at.into(),
            kind: entry.kind,
            call: entry.call.map(CallView::from),
        }
    }
}

impl From<StatementCall> for CallView {
    fn from(call: StatementCall) -> Self {
        Self {
            hold: call.hold,
            request_id: call.request,
            key_id: call.key,
            model: call.model,
            price: call.price,
            held: call.held,
        }
    }
}

impl From<InDoubt> for InDoubtView {
    fn from(doubt: InDoubt) -> Self {
        Self {
            account_id: doubt.account,
            call: doubt.call.into(),
            charged: doubt.charged,
            reserved_at: doubt.reserved_at.into(),
            resolved_at: doubt.resolved_at.into(),
        }
    }
}

/// Query of a statement: up to `limit` entries before `before`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EntriesQuery {
    /// Maximum number of items; default 100.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// `next_before` of the previous page.
    #[schemars(range(max = Seq::MAX))]
    before: Option<Seq>,
}

/// A page of a statement.
#[derive(Serialize, JsonSchema)]
#[serde(rename = "Statement")]
pub(super) struct StatementView {
    data: Vec<EntryView>,
    /// True if there are older entries.
    has_more: bool,
    /// Value of `before` for the next page; `null` on the last.
    next_before: Option<Seq>,
}

/// `GET /admin/v1/accounts/{account}/entries`, newest first.
pub(super) async fn list(
    State(state): State<AdminState>,
    PathNames(account): PathNames<String>,
    Params(query): Params<EntriesQuery>,
) -> ApiResult<Json<StatementView>> {
    let limit = check_limit(query.limit.unwrap_or(PAGE_DEFAULT))?;
    let account = accounts::find(&state, &account)?.id;
    let mut entries = state.ledger.entries(account, query.before, limit + 1).await?;
    let next_before = cut_page(&mut entries, limit, |last| last.seq);
    let data = entries.into_iter().map(EntryView::from).collect();
    Ok(Json(StatementView { data, has_more: next_before.is_some(), next_before }))
}

/// `GET /admin/v1/holds/in-doubt`, oldest first.
pub(super) async fn in_doubt(
    State(state): State<AdminState>,
    Params(page): Params<PageQuery<HoldId>>,
) -> ApiResult<Json<ListView<InDoubtView, HoldId>>> {
    let found = state.ledger.in_doubt().await?;
    Ok(Json(page.list(found, |doubt| doubt.call.hold, InDoubtView::from)?))
}
