//! Codes that customers redeem for credit, or sign up with.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::caller::Caller;
use super::error::{ApiError, ApiResult};
use super::request::{Body, ListView, PageQuery, Params, PathNames, WrittenOnce};
use super::value::{PositiveAmount, Time};
use tollgate_ledger::key_rules::{self, CODE_USES_MAX, NOTE_CHARS_MAX};
use tollgate_ledger::{CodeId, CodeKind, IssuedCode, NewCode};
use tollgate_money::money::Nanousd;

/// Pattern of notes: any text without control characters.
pub(super) const NOTE_PATTERN: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";

/// A code as returned: everything except the secret code itself.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Code")]
pub(super) struct CodeView {
    id: CodeId,
    kind: CodeKind,
    /// Credit of each use; `null` for an invite without credit.
    amount: Option<Nanousd>,
    /// Number of accounts that can use it.
    uses_max: u32,
    /// Number of accounts that have used it.
    used: usize,
    /// Expiry; `null` for never.
    expires_at: Option<Time>,
    /// Time when it was revoked.
    revoked_at: Option<Time>,
    note: String,
    created_at: Time,
}

impl From<IssuedCode> for CodeView {
    fn from(IssuedCode { code, used, revoked_at }: IssuedCode) -> Self {
        Self {
            id: code.id,
            kind: code.kind,
            amount: code.amount,
            uses_max: code.uses_max,
            used,
            expires_at: code.expires_at.map(Time),
            revoked_at: revoked_at.map(Time),
            note: code.note.clone(),
            created_at: code.created_at.into(),
        }
    }
}

/// The new code, with its secret.
#[derive(Serialize, JsonSchema)]
pub(super) struct CreatedCode {
    /// The code, returned only in this answer, not even when the request is repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(flatten)]
    view: CodeView,
}

/// Parameters of a new code.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "NewCode")]
#[serde(deny_unknown_fields)]
pub(super) struct NewCodeBody {
    kind: CodeKind,
    /// Credit of each use. Required for a credit code.
    #[serde(default)]
    amount: Option<PositiveAmount>,
    /// Number of accounts that can use it.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = CODE_USES_MAX))]
    uses_max: u32,
    /// Expiry; `null` for never.
    #[serde(default)]
    expires_at: Option<Time>,
    /// Note of the operator.
    #[serde(default)]
    #[schemars(extend("maxLength" = NOTE_CHARS_MAX, "pattern" = NOTE_PATTERN))]
    note: String,
}

fn one() -> u32 {
    1
}

/// `POST /admin/v1/codes`
pub(super) async fn create(
    State(state): State<AdminState>,
    caller: Caller,
    Body(new): Body<NewCodeBody>,
) -> ApiResult<WrittenOnce<CreatedCode>> {
    if new.kind == CodeKind::Credit && new.amount.is_none() {
        return Err(ApiError::invalid("amount", "A code for credit needs an amount."));
    }
    // Checked here as well, to name the field; the ledger's error has none.
    if !(1..=CODE_USES_MAX).contains(&new.uses_max) {
        let message = format!("`uses_max` goes from 1 to {CODE_USES_MAX}.");
        return Err(ApiError::invalid("uses_max", message));
    }
    check_note(&new.note)?;
    let new = NewCode {
        kind: new.kind,
        amount: new.amount.map(|amount| amount.0),
        uses_max: new.uses_max,
        expires_at: new.expires_at.map(|time| time.0),
        note: new.note,
    };
    let written = caller.by(&state).create_code(new).await?;
    let (secret, issued) = written.value;
    // Only the first response has the code: the ledger keeps a digest.
    let code = secret.map(|secret| secret.expose().to_owned());
    Ok(WrittenOnce { repeated: written.repeated, body: CreatedCode { code, view: issued.into() } })
}

/// `GET /admin/v1/codes`, oldest first.
pub(super) async fn list(
    State(state): State<AdminState>,
    Params(page): Params<PageQuery<CodeId>>,
) -> ApiResult<Json<ListView<CodeView, CodeId>>> {
    let codes = state.ledger.codes();
    Ok(Json(page.list(codes, |issued| issued.code.id, CodeView::from)?))
}

/// `GET /admin/v1/codes/{code}`
pub(super) async fn show(
    State(state): State<AdminState>,
    PathNames(code): PathNames<String>,
) -> ApiResult<Json<CodeView>> {
    let issued = code.parse().ok().and_then(|id| state.ledger.code(id));
    Ok(Json(issued.ok_or_else(unknown_code)?.into()))
}

/// `POST /admin/v1/codes/{code}/revoke`
pub(super) async fn revoke(
    State(state): State<AdminState>,
    PathNames(code): PathNames<String>,
    caller: Caller,
) -> ApiResult<Json<CodeView>> {
    let id: CodeId = code.parse().map_err(|_| unknown_code())?;
    Ok(Json(caller.by(&state).revoke_code(id).await?.value.into()))
}

fn unknown_code() -> ApiError {
    ApiError::not_found("There is no such code.")
}

/// A note may be empty, but must fit a line.
pub(super) fn check_note(note: &str) -> ApiResult<()> {
    key_rules::check_note(note).map_err(|_| {
        let message =
            format!("`note` has at most {NOTE_CHARS_MAX} characters and no control characters.");
        ApiError::invalid("note", message)
    })
}
