//! The configuration over HTTP: what is in force, and putting the files in force.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::AdminState;
use super::caller::{Caller, PresentedToken};
use super::description::{Operation, Output};
use super::error::ApiResult;
use super::request::Params;
use tollgate_config::Trigger;
use tollgate_ledger::{AccountId, Actor, ActorScope};
use tollgate_reload::{self as reload, ReloadAttempt};

/// The current configuration.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Config")]
pub(super) struct ConfigView {
    /// The hash of both files.
    hash: String,
    /// Both files in one document, as written, with fingerprints instead of secrets.
    config: Value,
}

/// `GET /admin/v1/config`: the active configuration as written. Fingerprints are keyed with the caller's
/// token; the command line computes the same for its own files.
pub(super) async fn show(
    State(state): State<AdminState>,
    token: PresentedToken,
) -> Json<ConfigView> {
    let config = state.config.load();
    // Fingerprints are keyed with the caller's token: an eavesdropper of the document cannot test guesses of
    // short secrets.
    let shown = config.described.shown(&token.0);
    Json(ConfigView { hash: config.hash.clone(), config: shown })
}

/// The query of a reload.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReloadQuery {
    /// Report the result without any change.
    #[serde(default)]
    dry_run: bool,
}

/// Result of a reload: 200 if the files are valid, 422 otherwise.
pub(super) struct ReloadResponse(reload::ReloadAttempt);

impl IntoResponse for ReloadResponse {
    fn into_response(self) -> Response {
        let in_order = self.0.is_in_order();
        // 422, not 400: the request is in order, the files are not.
        let status = if in_order { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
        (status, Json(self.0.document())).into_response()
    }
}

impl Output for ReloadResponse {
    fn describe(operation: &mut Operation<'_>) {
        operation.reply::<reload::ReloadReport>(StatusCode::OK, "The files are valid.");
        let why = "The files are not valid: the active configuration stays.";
        operation.reply::<reload::ReloadReport>(StatusCode::UNPROCESSABLE_ENTITY, why);
    }
}

/// `POST /admin/v1/reload`
pub(super) async fn reload(
    State(state): State<AdminState>,
    Params(query): Params<ReloadQuery>,
    caller: Caller,
) -> ApiResult<ReloadResponse> {
    let attempt = if query.dry_run {
        reload::try_out(&state.config).await
    } else {
        put_in_force(&state, caller.actor(), &caller.by(&state)).await?
    };
    Ok(ReloadResponse(attempt))
}

/// Reloads the files on behalf of `operator`, once per idempotency key of `by`, and records it in the audit
/// log.
pub(super) async fn put_in_force(
    state: &AdminState,
    operator: &Actor,
    by: &ActorScope<'_>,
) -> ApiResult<ReloadAttempt> {
    // A repeated request must not reload files that were changed since; it reports on them instead.
    if by.was_done("reload", AccountId::OPERATOR)? {
        return Ok(reload::try_out(&state.config).await);
    }
    let trigger = Trigger::Operator(operator.name().unwrap_or_default().to_owned());
    let attempt = reload::apply(&state.config, &state.metrics, trigger).await;
    if attempt.is_in_order() {
        // After the reload: a crash between the two leaves a reload without a note, and never a note of a
        // reload that failed.
        by.note("reload", AccountId::OPERATOR, &attempt.running).await?;
    }
    Ok(attempt)
}
