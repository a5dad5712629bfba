//! The configuration over HTTP: what is in force, and putting the files in force.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::AdminState;
use super::request::Params;
use crate::reload;

/// `GET /admin/v1/config`: what is in force, as it was typed.
pub(super) async fn show(State(state): State<AdminState>) -> Json<Value> {
    let config = state.config.load();
    Json(json!({"hash": config.hash, "config": config.described}))
}

/// The query of a reload.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reload {
    /// Only say what it would do.
    #[serde(default)]
    dry_run: bool,
}

/// `POST /admin/v1/reload`: 200 with files that are in order, 422 with others.
pub(super) async fn reload(
    State(state): State<AdminState>,
    Params(query): Params<Reload>,
) -> (StatusCode, Json<Value>) {
    let attempt = if query.dry_run {
        reload::try_out(&state.config).await
    } else {
        reload::apply(&state.config, &state.metrics).await
    };
    let status =
        if attempt.is_in_order() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    (status, Json(attempt.document()))
}
