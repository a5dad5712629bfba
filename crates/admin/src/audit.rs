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

/// Query of the audit log.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    /// Writes on this account only.
    account: Option<AccountId>,
    /// Maximum number of items; default 100.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// `next_before` of the previous page.
    #[schemars(range(max = Seq::MAX))]
    before: Option<Seq>,
}

/// One write in the audit log.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Act")]
struct ActView {
    /// Position in the journal.
    seq: Seq,
    at: Time,
    by: ActorView,
    /// Name of the write, such as `account.create`.
    what: String,
    /// The account; `null` if the write concerns no account.
    account_id: Option<AccountId>,
    /// Id of the changed object.
    subject: String,
    /// Idempotency key that the caller gave the write.
    idempotency_key: Option<String>,
}

/// Actor of a write.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Actor")]
struct ActorView {
    kind: ActorKind,
    /// Name of the operator in `admin.operators`.
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

/// A page of the audit log.
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
