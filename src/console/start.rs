//! The first page.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};

use super::Console;
use super::customer::Customer;
use crate::money::Nanousd;
use crate::web::{Frame, Page, show};

#[derive(Template)]
#[template(path = "customer_start.html")]
struct Start {
    frame: Frame,
    available: Nanousd,
}

/// `GET /`
pub(super) async fn page(State(console): State<Console>, customer: Customer) -> Response {
    let available = customer.account.balance.available;
    Page(Start { frame: customer.frame(&console, ""), available }).into_response()
}
