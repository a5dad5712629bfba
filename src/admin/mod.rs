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
mod ledger;
mod limits;
mod models;
mod openapi;
mod probes;
mod readiness;
mod request;
mod requests;
mod route;
mod serve;
mod table;
mod tasks;
mod upstreams;
mod usage;
mod value;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;

use crate::balance::Balancer;
use crate::config::ConfigHandle;
use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::request_log::RequestLog;
use crate::secret::Secret;
use crate::tasks::Tasks;

pub use openapi::document as openapi_document;
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
    /// What requests came to.
    pub requests: Arc<RequestLog>,
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
    let mut router = Router::new();
    for route in table::routes() {
        let (path, service) = route.into_service();
        router = router.route(path, service);
    }
    router
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::wrong_method)
        .layer(from_fn_with_state(state.clone(), request::around))
        .with_state(state)
}
