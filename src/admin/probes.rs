//! What machines ask: is the process alive, does it want requests, what does it count.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use super::error::{Answer, ApiError};
use super::{AdminState, upstreams};
use crate::metrics::LedgerFigures;

/// The media type of Prometheus' text format.
const TEXT_FORMAT: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// 200 for as long as the process can answer.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// 200 when requests are wanted, else 503 with the reason. An upstream that fails is no reason: the
/// others still serve.
pub(super) async fn readyz(State(state): State<AdminState>) -> Response {
    let reason = state.readiness.reason_against();
    let status = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let config = &state.config.load().hash;
    let body = json!({"ready": reason.is_none(), "reason": reason, "config": config});
    (status, Json(body)).into_response()
}

/// Everything counted, in Prometheus' text format.
pub(super) async fn metrics(State(state): State<AdminState>) -> Answer<Response> {
    let encode = move || {
        let (open_holds, written_off) = (state.ledger.open_holds(), state.ledger.written_off());
        let open_tasks = state.ledger.open_tasks();
        let (upstreams, circuits) = upstreams::figures(&state);
        state.metrics.show_targets(&upstreams, &circuits);
        state.metrics.encode(LedgerFigures { open_holds, open_tasks, written_off })
    };
    // With a thousand models this takes tens of milliseconds, which belong to no request's thread.
    let text = tokio::task::spawn_blocking(encode).await.map_err(ApiError::internal)?;
    Ok(([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response())
}
