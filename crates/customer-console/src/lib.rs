//! The customers' console: what a key can do and what an account has, as pages on the customers' own
//! listeners.
//!
//! | File | What it knows |
//! |---|---|
//! | `customer` | who is logged in, and what is said when something is not there |
//! | `fields`, `password`, `address` | which names and passwords are taken, where the gateway is |
//! | `access`, `sign_up` | logging in and out, and having an account to log in to |
//! | `start`, `snippets` | the first page, and what is pasted from it |
//! | `keys` | keys, of which each is shown once |
//! | `playground` | calls from a page |
//! | `account` | name, e-mail, password, codes |
//! | `balance`, `lines` | what the account has, and what happened to it |
//! | `requests` | what its requests came to |
//! | `prices` | what models cost this account |
//! | `usage` | what was used, by day, model and key |
//! | `videos`, `webhooks` | its tasks, and the announcements of their ends |
//! | `turn` | that an account's pages are made a few at a time |
//! | `key_names`, `units` | what keys are called, and how usage is told |
//!
//! A page sees one account: the session's. An id in a path that is another account's is answered
//! like one that does not exist.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

mod access;
mod account;
mod address;
mod balance;
mod customer;
mod fields;
mod key_names;
mod keys;
mod lines;
mod password;
mod playground;
mod playground_keys;
mod prices;
mod requests;
mod sign_up;
mod snippets;
mod start;
mod turn;
mod units;
mod usage;
mod videos;
mod webhooks;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Redirect, Response};
use axum::routing::{get, post};
use tower_http::compression::CompressionLayer;

use tollgate_config::ConfigHandle;
use tollgate_ledger::{AccountId, Ledger};
use tollgate_limits::Limiter;
use tollgate_tasks::Tasks;
use tollgate_telemetry::metrics::Metrics;
use tollgate_telemetry::request_log::RequestLog;

use tollgate_web_kit::password::Passwords;
use tollgate_web_kit::{
    self as web, Client, ConsoleGuard, Devices, LogIns, NavItem, OwnAttempts, PageFrame, Session,
    Sessions, SignUps, TryCounter,
};

/// Its cookie. Browsers do not tell ports apart: it must not be the operators'.
const COOKIE: &str = "tollgate_console";
/// The cookie of browsers in which somebody was logged in before.
const DEVICE_COOKIE: &str = "tollgate_device";
/// Route of the console in metrics and logs, wherever it is mounted.
pub const ROUTE: &str = "/console";
/// The largest form, in bytes: the longest field is a list of models.
pub const BODY_BYTES_MAX: usize = 64 << 10;
/// Keys that one account makes in a short time, before there is one in [`KEY_EVERY`].
const KEYS_AT_ONCE: u32 = 20;
const KEY_EVERY: Duration = Duration::from_secs(30);
/// Changes of keys and of its name that one account makes in a short time, before there is one in
/// [`CHANGE_EVERY`]: each is in the ledger for ever, costs nothing, and has up to 13 KiB.
const CHANGES_AT_ONCE: u32 = 100;
const CHANGE_EVERY: Duration = Duration::from_secs(20);
/// Message for too many changes.
const TOO_MANY_CHANGES: &str =
    "These are many changes in a short time. Wait half a minute and try again.";
/// The ways through it.
const NAV: &[NavItem] = &[
    NavItem { path: "", label: "Start" },
    NavItem { path: "/keys", label: "Keys" },
    NavItem { path: "/playground", label: "Playground" },
    NavItem { path: "/balance", label: "Balance" },
    NavItem { path: "/usage", label: "Usage" },
    NavItem { path: "/prices", label: "Prices" },
    NavItem { path: "/requests", label: "Requests" },
    NavItem { path: "/videos", label: "Videos" },
    NavItem { path: "/webhooks", label: "Webhooks" },
    NavItem { path: "/account", label: "Account" },
];

/// Parts that the console needs.
pub struct ConsoleParts {
    /// Accounts, keys and money.
    pub ledger: Arc<Ledger>,
    /// Work that outlives its request.
    pub tasks: Arc<Tasks>,
    /// Log of finished requests.
    pub requests: Arc<RequestLog>,
    /// Handle to the active configuration.
    pub config: Arc<ConfigHandle>,
    /// Pool of threads that hash passwords.
    pub passwords: Passwords,
    /// Usage of accounts against their limits.
    pub limits: Arc<Limiter>,
    /// Counters of refused requests.
    pub metrics: Arc<Metrics>,
}

/// Shared state of the console's pages.
#[derive(Clone)]
struct CustomerConsole {
    /// Its path, without a slash at the end.
    base: Arc<str>,
    ledger: Arc<Ledger>,
    tasks: Arc<Tasks>,
    requests: Arc<RequestLog>,
    config: Arc<ConfigHandle>,
    sessions: Arc<Sessions>,
    passwords: Passwords,
    limits: Arc<Limiter>,
    metrics: Arc<Metrics>,
    /// Devices on which customers have logged in.
    devices: Arc<Devices>,
    /// Tries at passwords, of those who are not logged in.
    log_ins: Arc<LogIns>,
    /// Tries at the password of the account that one is logged in to.
    own_passwords: Arc<OwnAttempts<AccountId>>,
    /// Limits on sign-ups.
    sign_ups: Arc<SignUps>,
    /// Tries at redeeming codes, by address and by account.
    redemptions: Arc<OwnAttempts<AccountId>>,
    /// Keys that one account makes.
    key_makings: Arc<TryCounter<AccountId>>,
    /// Changes of keys and names that one account makes.
    changes: Arc<TryCounter<AccountId>>,
    /// Rate limit of repeated webhooks, by account.
    replays: Arc<TryCounter<AccountId>>,
}

impl CustomerConsole {
    /// Frame of a page without a user.
    fn frame(&self, session: &Session) -> PageFrame {
        PageFrame::new(&self.base, "Console", &self.sessions, session)
    }

    /// The address of a page: `path` begins with a slash, or is empty for the first one.
    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

/// The console as a service of the customers' listeners; `None` where it is switched off.
///
/// # Errors
/// When the key of the sessions can neither be read nor made.
pub fn service(parts: ConsoleParts) -> io::Result<Option<(String, Router)>> {
    let config = parts.config.load();
    if !config.console.enabled {
        return Ok(None);
    }
    let base = config.console.path.clone();
    let sessions = Sessions::kept_in(&config.store.data_dir, COOKIE, base.clone())?;
    // Only the log-in page gets this cookie: no other request needs it.
    let devices = Devices::kept_in(&config.store.data_dir, DEVICE_COOKIE, format!("{base}/login"))?;
    drop(config);
    let console = CustomerConsole {
        base: base.as_str().into(),
        ledger: parts.ledger,
        tasks: parts.tasks,
        requests: parts.requests,
        config: parts.config,
        sessions: Arc::new(sessions),
        passwords: parts.passwords,
        limits: parts.limits,
        metrics: parts.metrics,
        devices: Arc::new(devices),
        log_ins: Arc::default(),
        own_passwords: Arc::default(),
        sign_ups: Arc::default(),
        redemptions: Arc::default(),
        key_makings: Arc::new(TryCounter::new(KEYS_AT_ONCE, KEY_EVERY)),
        changes: Arc::new(TryCounter::new(CHANGES_AT_ONCE, CHANGE_EVERY)),
        replays: Arc::default(),
    };
    Ok(Some((base, router(console))))
}

/// Every page. The paths of pages are below the console's own.
fn router(console: CustomerConsole) -> Router {
    let guarded = ConsoleGuard { sessions: Arc::clone(&console.sessions) };
    let base = console.base.to_string();
    let pages = Router::new()
        .route("/", get(start::page))
        .route("/login", get(access::page).post(access::log_in))
        .route("/balance", get(balance::page))
        .route("/balance/{hold}", get(balance::hold))
        .route("/prices", get(prices::page))
        .route("/usage", get(usage::page))
        .route("/usage.csv", get(usage::download))
        .route("/requests", get(requests::page))
        .route("/requests/{id}", get(requests::one))
        .route("/videos", get(videos::page))
        .route("/videos/{id}", get(videos::one))
        .route("/webhooks", get(webhooks::page))
        .route("/webhooks/secret", post(webhooks::secret))
        .route("/webhooks/{task}/replay", post(webhooks::replay))
        .route("/logout", post(access::log_out))
        .route("/signup", get(sign_up::page).post(sign_up::sign_up))
        .route("/start", post(start::first_key))
        .route("/keys", get(keys::list).post(keys::create))
        .route("/keys/new", get(keys::new))
        .route("/keys/{key}", get(keys::show).post(keys::save))
        .route("/keys/{key}/off", post(keys::switch_off))
        .route("/keys/{key}/on", post(keys::switch_on))
        .route("/keys/{key}/revoke", post(keys::revoke))
        .route("/playground", get(playground::page))
        .route("/playground/key", post(playground::key))
        .route("/playground/cost", get(playground::cost))
        .route("/account", get(account::page))
        .route("/account/name", post(account::rename))
        .route("/account/email", post(account::change_email))
        .route("/account/password", post(account::change_password))
        .route("/account/redeem", post(account::redeem))
        .fallback(customer::nowhere)
        // The layer added last runs first: `introduce` finds the client, the guard reads its session, and
        // only then an account waits for its turn.
        .layer(from_fn_with_state(console.clone(), turn::take))
        .layer(from_fn_with_state(guarded, web::guard))
        .layer(from_fn_with_state(console.clone(), introduce))
        .with_state(console);
    // Behind the layers: scripts and style sheets are public, and need no session to be cached.
    let assets = Router::new().route("/assets/{version}/{name}", get(web::assets));
    // People type a slash at the end.
    let first = Redirect::to(&base);
    Router::new()
        .route(&format!("{base}/"), get(move || async move { first }))
        .nest(&base, assets.merge(pages))
        .layer(CompressionLayer::new())
}

/// Provides client address and language to the pages.
async fn introduce(
    State(console): State<CustomerConsole>,
    mut request: Request,
    next: Next,
) -> Response {
    let client = request.extensions().get::<Client>().copied().unwrap_or_default();
    let public = console.config.load().console.public_url.as_ref().is_some_and(|url| url.tls);
    // A proxy may end TLS before the gateway; the public address tells what browsers speak.
    request.extensions_mut().insert(Client { tls: public || client.tls, ..client });
    next.run(request).await
}
