//! The operator's side: accounts, grants, keys and the ledger's entries over HTTP, the probes of a
//! process supervisor, and the metrics. On an address of its own; `docs/admin-api.md` is the
//! reference.
//!
//! Everything under `/admin/` asks for the bearer token, even paths that do not exist. Probes and
//! metrics do not: they tell nothing of a customer.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

mod accounts;
mod audit;
mod caller;
mod guesses;
mod codes;
mod config;
mod connections;
mod credit;
mod console;
mod description;
mod entries;
mod error;
mod explain;
mod fleet;
mod keys;
mod ledger;
mod limits;
mod login;
mod margins;
mod models;
mod openapi;
mod prices;
mod probes;
mod readiness;
mod request;
mod requests;
mod resolve;
mod route;
mod search;
mod serve;
mod table;
mod task_list;
mod tasks;
mod upstreams;
mod usage;
mod value;
mod version;

use std::sync::Arc;

use axum::Router;
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::http::{HeaderValue, Response};
use axum::middleware::{from_fn_with_state, map_response};

use tollgate_balance::Balancer;
use tollgate_config::ConfigHandle;
use tollgate_credentials::Credentials;
use tollgate_ledger::{Actor, Ledger};
use tollgate_tasks::Tasks;
use tollgate_telemetry::metrics::Metrics;
use tollgate_telemetry::request_log::RequestLog;
use tollgate_types::secret::Secret;
use tollgate_web_kit::password::Passwords;

pub use guesses::Guesses;
pub use readiness::Readiness;
pub use serve::serve;
pub use table::document as openapi_document;

/// Shared state of the admin API.
#[derive(Clone)]
pub struct AdminState {
    /// Accounts, keys and money.
    pub ledger: Arc<Ledger>,
    /// Work that outlives its request.
    pub tasks: Arc<Tasks>,
    /// The counters and gauges that `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// Log of finished requests.
    pub requests: Arc<RequestLog>,
    /// The running configuration: which models there are.
    pub config: Arc<ConfigHandle>,
    /// Health of the targets.
    pub balancer: Arc<Balancer>,
    /// Tokens issued for the operator's credentials.
    pub credentials: Arc<Credentials>,
    /// Readiness of the gateway, as `/readyz` reports it.
    pub readiness: Arc<Readiness>,
    /// The bearer token of everything under `/admin/`, and of the operator `admin`.
    pub token: Secret,
    /// Pool of threads that hash passwords.
    pub passwords: Passwords,
    /// Wrong tokens, by the address that they come from.
    pub guesses: Arc<Guesses>,
}

/// Name of users of [`AdminState::token`] in the audit log.
const ADMIN: &str = "admin";

impl AdminState {
    /// The operator whose token was presented. All tokens are compared, so that time does not tell
    /// which one was close.
    fn operator(&self, presented: &[u8]) -> Option<Actor> {
        let config = self.config.load();
        let named = config.admin.operators.iter();
        let all = named.map(|operator| (operator.name.as_str(), &operator.token));
        all.chain([(ADMIN, &self.token)])
            .fold(
                None,
                |found, (name, token)| if token.matches(presented) { Some(name) } else { found },
            )
            .map(Actor::operator)
    }

    /// Reason why the gateway is not ready, or `None` if it is: the process is starting or stopping, or the
    /// node is cut off from its fleet.
    fn reason_against(&self) -> Option<&'static str> {
        let own = self.readiness.reason_against();
        own.or_else(|| self.ledger.node_status()?.reason_against())
    }

    /// The token of the operator of this name, as long as there is one.
    fn token_of(&self, name: &str) -> Option<Secret> {
        if name == ADMIN {
            return Some(self.token.clone());
        }
        let config = self.config.load();
        let operator = config.admin.operators.iter().find(|operator| operator.name == name)?;
        Some(operator.token.clone())
    }
}

/// Every path that there is.
///
/// # Errors
/// When the key of the operators' sessions can neither be read nor made.
pub fn app(state: AdminState) -> std::io::Result<Router> {
    let config = state.config.load();
    let mut app = api(state.clone());
    if config.admin.console {
        // Merged beside the API, not below it: the console authenticates by sessions, not by the bearer
        // token.
        app = app.merge(console::router(state, &config.store.data_dir)?);
    }
    Ok(app.layer(map_response(nosniff)))
}

/// Prevents browsers from guessing a content type: the console has the same origin.
async fn nosniff<B>(mut response: Response<B>) -> Response<B> {
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
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
        .layer(from_fn_with_state(state.clone(), caller::middleware))
        .with_state(state)
}
