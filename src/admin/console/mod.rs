//! The operators' console on the admin address: what the admin API does, as pages.
//!
//! An operator logs in with a token of the admin API. Its sessions, its cookie and its key are its
//! own: what customers have is nothing here.

mod access;
mod overview;

use std::io;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use tower_http::compression::CompressionLayer;

use super::AdminState;
use crate::web::{self, Attempts, Frame, Guarded, NavItem, Session, Sessions};

/// Where the console is.
const BASE: &str = "/operator";
/// Its cookie. Browsers do not tell ports apart: it must not be the customers'.
const COOKIE: &str = "tollgate_operator";
/// The ways through it.
const NAV: &[NavItem] = &[NavItem { path: "", label: "Overview" }];

/// What its pages work with.
#[derive(Clone)]
struct Console {
    admin: AdminState,
    sessions: Arc<Sessions>,
    attempts: Arc<Attempts>,
}

impl Console {
    /// The frame of a page for nobody in particular.
    fn frame(&self, session: &Session) -> Frame {
        Frame::new((BASE, "Operator"), &self.sessions, session)
    }
}

/// Every page.
///
/// # Errors
/// When the key of the sessions can neither be read nor made.
pub(super) fn router(admin: AdminState, data_dir: &Path) -> io::Result<Router> {
    let sessions = Arc::new(Sessions::kept_in(data_dir, COOKIE, BASE)?);
    let console = Console { admin, sessions: Arc::clone(&sessions), attempts: Arc::default() };
    let pages = Router::new()
        .route("/operator", get(overview::page))
        .route("/operator/login", get(access::page).post(access::log_in))
        .route("/operator/logout", post(access::log_out))
        .route("/operator/{*path}", get(access::nowhere))
        .layer(from_fn_with_state(Guarded { sessions }, web::guard))
        .with_state(console);
    Ok(pages
        .route("/operator/assets/{version}/{name}", get(web::assets))
        .layer(CompressionLayer::new()))
}
