//! The operator's side: accounts, grants, keys and the ledger's entries over HTTP, the probes of a
//! process supervisor, and the metrics. On an address of its own; `docs/admin-api.md` is the
//! reference.
//!
//! Everything under `/admin/` asks for the bearer token, even paths that do not exist. Probes and
//! metrics do not: they tell nothing of a customer.

mod accounts;
mod config;
mod console;
mod entries;
mod error;
mod explain;
mod keys;
mod limits;
mod probes;
mod readiness;
mod request;
mod serve;
mod tasks;
mod upstreams;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use crate::balance::Balancer;
use crate::config::ConfigHandle;
use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::secret::Secret;
use crate::tasks::Tasks;

pub use readiness::Readiness;
pub use serve::serve;

/// What the admin API works with.
#[derive(Clone)]
pub struct AdminState {
    /// Accounts, keys and money.
    pub ledger: Arc<Ledger>,
    /// Work that outlives its request.
    pub tasks: Arc<Tasks>,
    /// What `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// The running configuration: which models there are.
    pub config: Arc<ConfigHandle>,
    /// How the targets are doing.
    pub balancer: Arc<Balancer>,
    /// What `/readyz` says.
    pub readiness: Arc<Readiness>,
    /// The bearer token of everything under `/admin/`.
    pub token: Secret,
}

/// Every path that there is.
///
/// # Errors
/// When the key of the operators' sessions can neither be read nor made.
pub fn app(state: AdminState) -> std::io::Result<Router> {
    let config = state.config.load();
    let api = api(state.clone());
    if !config.admin.console {
        return Ok(api);
    }
    Ok(api.merge(console::router(state, &config.store.data_dir)?))
}

fn api(state: AdminState) -> Router {
    Router::new()
        .route("/healthz", get(probes::healthz))
        .route("/readyz", get(probes::readyz))
        .route("/metrics", get(probes::metrics))
        .route("/admin/v1/accounts", get(accounts::list).post(accounts::create))
        .route("/admin/v1/accounts/{account}", get(accounts::show).patch(accounts::update))
        .route("/admin/v1/accounts/{account}/grants", post(accounts::grant))
        .route("/admin/v1/accounts/{account}/refunds", post(accounts::refund))
        .route("/admin/v1/accounts/{account}/keys", get(keys::list).post(keys::create))
        .route("/admin/v1/accounts/{account}/entries", get(entries::list))
        .route("/admin/v1/keys/{key}", get(keys::show).patch(keys::update))
        .route("/admin/v1/accounts/{account}/webhook-secret", get(tasks::webhook_secret))
        .route("/admin/v1/accounts/{account}/tasks/{task}/announce", post(tasks::announce))
        .route("/admin/v1/tasks/in-doubt", get(tasks::in_doubt))
        .route("/admin/v1/holds/in-doubt", get(entries::in_doubt))
        .route("/admin/v1/config", get(config::show))
        .route("/admin/v1/reload", post(config::reload))
        .route("/admin/v1/upstreams", get(upstreams::list))
        .route("/admin/v1/route", get(explain::route))
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::wrong_method)
        .layer(from_fn_with_state(state.clone(), request::around))
        .with_state(state)
}
