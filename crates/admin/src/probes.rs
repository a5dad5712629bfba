//! Probes for machines: liveness, readiness and metrics.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::description::{Operation, Output};
use super::error::{ApiError, ApiResult};
use super::{AdminState, upstreams};
use tollgate_balance::Outcome;
use tollgate_fleet::HasFleet;
use tollgate_ledger::CreditSums;
use tollgate_telemetry::metrics::LedgerFigures;

/// The media type of Prometheus' text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// 200 for as long as the process can answer.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Readiness of the process.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Readiness")]
pub(super) struct ReadinessView {
    ready: bool,
    /// `starting` or `draining`; in a fleet also `cut_off` or `directory_stopped`; `null` when ready.
    reason: Option<&'static str>,
    /// Part that does not work although requests are served: `ledger_projection` while statements, usage,
    /// ended tasks and the audit cannot be read, else `null`.
    degraded: Option<&'static str>,
    /// Hash of the active configuration.
    config: String,
}

impl IntoResponse for ReadinessView {
    fn into_response(self) -> Response {
        let status = if self.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, Json(self)).into_response()
    }
}

impl Output for ReadinessView {
    fn describe(operation: &mut Operation<'_>) {
        operation.reply::<Self>(StatusCode::OK, "The gateway accepts requests.");
        operation.reply::<Self>(
            StatusCode::SERVICE_UNAVAILABLE,
            "The gateway accepts no requests; `reason` says why.",
        );
    }
}

/// 200 when ready, else 503 with the reason. A failing upstream is no reason, since the others still serve.
pub(super) async fn readyz(State(state): State<AdminState>) -> ReadinessView {
    let reason = state.reason_against();
    let is_away = state.ledger.projection_state().away.is_some();
    let degraded = is_away.then_some("ledger_projection");
    ReadinessView {
        ready: reason.is_none(),
        reason,
        degraded,
        config: state.config.load().hash.clone(),
    }
}

/// All metrics in the text format of Prometheus.
pub(super) struct MetricsText(String);

impl IntoResponse for MetricsText {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, TEXT_FORMAT)], self.0).into_response()
    }
}

impl Output for MetricsText {
    fn describe(operation: &mut Operation<'_>) {
        let text = json!({"type": "string"});
        operation.reply_as(StatusCode::OK, "Prometheus' text format.", TEXT_FORMAT, &text);
        operation.refusal(StatusCode::INTERNAL_SERVER_ERROR, "The gateway failed.");
    }
}

/// Everything counted, in Prometheus' text format.
pub(super) async fn metrics(State(state): State<AdminState>) -> ApiResult<MetricsText> {
    let (mut debt, mut credit) = (None, None);
    if let (Some(fleet), Some(standing)) = (state.ledger.fleet(), state.ledger.node_status()) {
        // The only await, and before the blocking part: the database must not stop a thread of the pool.
        let overview = fleet.overview().await;
        state.metrics.show_fleet(&standing, overview.as_deref());
        // What was never seen is not said to be nothing.
        debt = Some(overview.as_deref().map(|overview| overview.sums.money.debt));
        credit = Some(overview.map(|overview| CreditSums {
            lines: overview.sums.money.credit,
            used: overview.sums.credit_used,
        }));
    }
    let encode = move || {
        let (open_holds, written_off) = (state.ledger.open_holds(), state.ledger.written_off());
        let debt = debt.unwrap_or_else(|| Some(state.ledger.debt()));
        let credit = credit.unwrap_or_else(|| Some(state.ledger.credit()));
        let sums = state.ledger.loss_sums();
        let losses = sums.into_iter().map(|(cause, sum)| (cause, sum.amount)).collect();
        let open_tasks = state.tasks.open();
        let (upstreams, circuits) = upstreams::figures(&state);
        state.metrics.begin(&state.config.load(), &Outcome::WORDS);
        state.metrics.show_targets(&upstreams, &circuits);
        state.metrics.show_credentials(&upstreams::credential_figures(&state));
        let projection = state.ledger.projection_state();
        let ledger =
            LedgerFigures { open_holds, open_tasks, debt, credit, written_off, losses, projection };
        state.metrics.encode(&ledger, state.requests.figures())
    };
    // With a thousand models this takes tens of milliseconds, which belong to no request's thread.
    let text = tokio::task::spawn_blocking(encode).await.map_err(ApiError::internal)?;
    Ok(MetricsText(text))
}
