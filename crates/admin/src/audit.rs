//! The audit log: writes with their actors.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::error::ApiResult;
use super::request::{PAGE_DEFAULT, PAGE_MAX, Params, check_limit};
use super::value::Time;
use tollgate_ledger::{AccountId, ListedAct, Seq};
use tollgate_web_kit::cut_page;

/// The part of the audit that is asked for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    /// Only what was done on this account.
    account: Option<AccountId>,
    /// The most items of the answer; 100 when it is left out.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// The last item of the page before: its `next_before`.
    #[schemars(range(max = Seq::MAX))]
    before: Option<Seq>,
}

/// One thing that someone did.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Act")]
struct ActView {
    /// Its place in the journal.
    seq: Seq,
    at: Time,
    by: ActorView,
    /// Name of the write, such as `account.create`.
    what: String,
    /// On which account; `null` where it is no customer's.
    account_id: Option<AccountId>,
    /// The id of the thing that was written.
    subject: String,
    /// Idempotency key that the caller gave the write.
    idempotency_key: Option<String>,
}

/// Actor of a write.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Actor")]
struct ActorView {
    kind: ActorKind,
    /// The name of the operator, as `admin.operators` has it.
    name: Option<String>,
}

/// Kind of an actor.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum ActorKind {
    Operator,
    Customer,
    Gateway,
}

impl From<ListedAct> for ActView {
    fn from(ListedAct { seq, act }: ListedAct) -> Self {
        use tollgate_ledger::Actor;
        let kind = match act.by {
            Actor::Operator(_) => ActorKind::Operator,
            Actor::Customer => ActorKind::Customer,
            Actor::Gateway => ActorKind::Gateway,
        };
        Self {
            seq,
            at: act.at.into(),
            by: ActorView { kind, name: act.by.name().map(str::to_owned) },
            what: act.what,
            // The operator's own account 0 is internal; writes to the configuration or to codes belong to no
            // customer.
            account_id: Some(act.account).filter(|account| *account != AccountId::OPERATOR),
            subject: act.subject,
            idempotency_key: act.id,
        }
    }
}

/// A part of the audit.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Audit")]
pub(super) struct AuditView {
    data: Vec<ActView>,
    /// True if there are older writes.
    has_more: bool,
    /// Value of `before` for the next page; `null` on the last.
    next_before: Option<Seq>,
}

/// `GET /admin/v1/audit`, newest first.
pub(super) async fn list(
    State(state): State<AdminState>,
    Params(query): Params<AuditQuery>,
) -> ApiResult<Json<AuditView>> {
    let limit = check_limit(query.limit.unwrap_or(PAGE_DEFAULT))?;
    let mut acts = state.ledger.acts(query.account, query.before, limit + 1).await?;
    let next_before = cut_page(&mut acts, limit, |last| last.seq);
    let data = acts.into_iter().map(ActView::from).collect();
    Ok(Json(AuditView { data, has_more: next_before.is_some(), next_before }))
}
