//! The operators' console on the admin address: what the admin API does, as pages.
//!
//! An operator logs in with a token of the admin API. Its sessions, its cookie and its key are its
//! own: what customers have is nothing here.

mod access;
mod audit;
mod codes;
mod configuration;
mod customer;
mod customer_prices;
mod customers;
mod done;
mod doubts;
mod entries;
mod fleet;
mod form;
mod hold_rules;
mod keys;
mod ledger;
mod login;
mod margins;
mod overview;
mod prices;
mod requests;
mod rule_text;
mod series;
mod tail;
mod upstreams;
mod usage;
mod webhooks;

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use tower_http::compression::CompressionLayer;

use super::AdminState;
use tollgate_client_address as forwarded;
use tollgate_fleet::HasFleet;
use tollgate_web_kit::{
    self as web, Client, ConsoleGuard, NavItem, PageFrame, Session, Sessions, TryCounter,
};

/// Path prefix of the console.
const BASE: &str = "/operator";
/// Its cookie. Browsers do not tell ports apart: it must not be the customers'.
const COOKIE: &str = "tollgate_operator";
/// The ways through it.
const NAV: &[NavItem] = &[
    NavItem { path: "", label: "Overview" },
    NavItem { path: "/requests", label: "Requests" },
    NavItem { path: "/customers", label: "Customers" },
    NavItem { path: "/prices", label: "Prices" },
    NavItem { path: "/margins", label: "Margins" },
    NavItem { path: "/codes", label: "Codes" },
    NavItem { path: "/in-doubt", label: "In doubt" },
    NavItem { path: "/webhooks", label: "Webhooks" },
    NavItem { path: "/upstreams", label: "Upstreams" },
    NavItem { path: "/configuration", label: "Configuration" },
    NavItem { path: "/audit", label: "Audit" },
    NavItem { path: "/ledger", label: "Ledger" },
    // The last: a single gateway has all but this one.
    NavItem { path: fleet::HERE, label: "Fleet" },
];

/// The ways through the console of this gateway.
fn nav(admin: &AdminState) -> &'static [NavItem] {
    match (admin.ledger.fleet(), NAV.split_last()) {
        // The fleet's page is last, so that a single gateway drops it by length.
        (None, Some((_, single))) => single,
        _ => NAV,
    }
}

/// Shared state of the console's pages.
#[derive(Clone)]
struct OperatorConsole {
    admin: AdminState,
    sessions: Arc<Sessions>,
    attempts: Arc<TryCounter<IpAddr>>,
}

impl OperatorConsole {
    /// The frame of a page for nobody in particular.
    fn frame(&self, session: &Session) -> PageFrame {
        PageFrame::new(BASE, "Operator", &self.sessions, session)
    }
}

/// Router with all pages.
///
/// # Errors
/// When the key of the sessions can neither be read nor made.
pub(super) fn router(admin: AdminState, data_dir: &Path) -> io::Result<Router> {
    let sessions = Arc::new(Sessions::kept_in(data_dir, COOKIE, BASE)?);
    let console =
        OperatorConsole { admin, sessions: Arc::clone(&sessions), attempts: Arc::default() };
    let pages = Router::new()
        .route("/operator", get(overview::page))
        .route("/operator/customers", get(customers::page).post(customers::create))
        .route("/operator/customers/{account}", get(customer::page))
        .route("/operator/customers/{account}/grants", post(customer::grant))
        .route("/operator/customers/{account}/write-offs", post(customer::write_off))
        .route("/operator/customers/{account}/limits", post(customer::limit))
        .route("/operator/customers/{account}/credit", post(customer::set_line))
        .route("/operator/customers/{account}/holds", post(customer::set_holds))
        .route("/operator/customers/{account}/keys", get(keys::page).post(keys::create))
        .route("/operator/customers/{account}/keys/{key}", post(keys::switch))
        .route("/operator/customers/{account}/entries", get(entries::page))
        .route("/operator/customers/{account}/refunds", post(entries::refund))
        .route("/operator/customers/{account}/usage", get(usage::page))
        .route(
            "/operator/customers/{account}/prices",
            get(customer_prices::page).post(customer_prices::set),
        )
        .route("/operator/prices", get(prices::page))
        .route("/operator/prices/{version}", get(prices::one))
        .route("/operator/prices/groups", get(prices::page).post(prices::create_group))
        .route("/operator/prices/groups/{group}", get(prices::group).post(prices::set_group))
        .route("/operator/margins", get(margins::page))
        .route("/operator/configuration", get(configuration::page))
        .route("/operator/configuration/try", post(configuration::try_out))
        .route("/operator/configuration/reload", post(configuration::apply))
        .route("/operator/configuration/files", get(configuration::typed))
        .route("/operator/customers/{account}/suspend", post(customer::suspend))
        .route("/operator/customers/{account}/login", post(login::set))
        .route("/operator/customers/{account}/name", post(customer::rename))
        .route("/operator/customers/{account}/tasks", get(webhooks::of_customer))
        .route("/operator/customers/{account}/tasks/{task}/announce", post(webhooks::announce))
        .route("/operator/customers/{account}/audit", get(audit::of_customer))
        .route("/operator/figures", get(overview::refreshed))
        .route("/operator/codes", get(codes::page).post(codes::create))
        .route("/operator/codes/{code}/revoke", post(codes::revoke))
        .route("/operator/in-doubt", get(doubts::page))
        .route("/operator/in-doubt/holds/{hold}", post(doubts::resolve_hold))
        .route("/operator/in-doubt/tasks/{task}", post(doubts::resolve_task))
        .route("/operator/webhooks", get(webhooks::page))
        .route("/operator/fleet", get(fleet::page))
        .route("/operator/fleet/suspense", post(fleet::resolve))
        .route("/operator/audit", get(audit::page))
        .route("/operator/ledger", get(ledger::page))
        .route("/operator/ledger/verify", post(ledger::verify))
        .route("/operator/ledger/export", get(ledger::export))
        .route("/operator/requests", get(requests::page))
        .route("/operator/requests/tail", get(tail::follow))
        .route("/operator/requests/{request}", get(requests::one))
        .route("/operator/upstreams", get(upstreams::page))
        .route("/operator/login", get(access::page).post(access::log_in))
        .route("/operator/logout", post(access::log_out))
        .route("/operator/{*path}", get(access::nowhere))
        // The layer added last runs first: the guard needs the client's address and scheme from `introduce`.
        .layer(from_fn_with_state(ConsoleGuard { sessions }, web::guard))
        .layer(from_fn_with_state(console.clone(), introduce))
        .with_state(console);
    Ok(pages
        // Behind the layers: scripts and style sheets are public, and need no session to be cached.
        .route("/operator/assets/{version}/{name}", get(web::assets))
        .layer(CompressionLayer::new()))
}

/// Determines the client's address behind a trusted proxy, for the pages.
async fn introduce(
    State(console): State<OperatorConsole>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut client = request.extensions().get::<Client>().copied().unwrap_or_default();
    if let Some(peer) = client.address {
        let (headers, config) = (request.headers(), console.admin.config.load());
        client.address = Some(forwarded::address(peer, headers, &config.trusted_proxies));
        // `|=`: a proxy may end TLS before a gateway that speaks it too; either makes the cookie `Secure`.
        client.tls |= forwarded::is_tls(peer, headers, &config.trusted_proxies);
    }
    request.extensions_mut().insert(client);
    next.run(request).await
}
