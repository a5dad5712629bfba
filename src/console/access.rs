//! Logging in and out.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};

use super::Console;
use super::customer::Customer;
use crate::web::{Frame, Page, Session, SessionChange};

#[derive(Template)]
#[template(path = "customer_login.html")]
struct LogIn {
    frame: Frame,
    email: String,
}

/// `GET /login`
pub(super) async fn page(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
) -> Response {
    if Customer::of(&console, &session).is_some() {
        return Redirect::to(&console.at("")).into_response();
    }
    Page(LogIn { frame: console.frame(&session), email: String::new() }).into_response()
}

/// `POST /logout`
pub(super) async fn log_out(State(console): State<Console>) -> Response {
    (Extension(SessionChange::End), Redirect::to(&console.at("/login"))).into_response()
}
