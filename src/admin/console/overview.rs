//! The first page: how the gateway is doing.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};

use super::Console;
use super::access::Operator;
use crate::web::{Frame, Page};

#[derive(Template)]
#[template(path = "operator_overview.html")]
struct Overview {
    frame: Frame,
    configuration: String,
}

/// `GET /operator`
pub(super) async fn page(State(console): State<Console>, operator: Operator) -> Response {
    let configuration = console.admin.config.load().hash.clone();
    Page(Overview { frame: operator.frame(&console, ""), configuration }).into_response()
}
