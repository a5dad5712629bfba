//! Version of the gateway, for deployments that wait until all of their gateways run the same.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::AdminState;

/// Version of the gateway, and its configuration.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Version")]
pub(super) struct VersionView {
    /// Version of the program, as printed by `tollgate --version`.
    version: &'static str,
    /// Hash of the active configuration, as in `GET /admin/v1/config`.
    configuration: String,
}

/// `GET /admin/v1/version`
pub(super) async fn show(State(state): State<AdminState>) -> Json<VersionView> {
    let configuration = state.config.load().hash.clone();
    Json(VersionView { version: env!("CARGO_PKG_VERSION"), configuration })
}
