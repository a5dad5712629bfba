//! Prices of models for this account: list prices or its own.

use askama::Template;
use axum::extract::{Query, State};
use axum::response::IntoResponse as _;
use serde::Deserialize;

use super::CustomerConsole;
use super::customer::{LoggedInCustomer, PageResult};
use tollgate_pricing as pricing;
use tollgate_types::clock::UnixMs;
use tollgate_web_kit::{HtmlPage, PageFrame, PriceLine, price_lines};

/// Models on the page: one with more is slow to use, and long. Others are found by their names.
const MODELS_MAX: usize = 300;

#[derive(Template)]
#[template(path = "customer_prices.html")]
struct PricesPage {
    frame: PageFrame,
    /// Search text for model names.
    search: String,
    models: Vec<PricedModel>,
    /// Number of omitted models.
    left_out: usize,
}

/// Prices of one model.
struct PricedModel {
    id: String,
    version: String,
    /// Prices where no condition holds.
    lines: Vec<PriceLine>,
    /// Prices under conditions.
    conditional: Vec<PriceLine>,
}

/// Query of the page of prices.
#[derive(Deserialize)]
pub(super) struct PricesQuery {
    #[serde(default)]
    q: String,
}

/// `GET /prices`
pub(super) async fn page(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Query(PricesQuery { q }): Query<PricesQuery>,
) -> PageResult {
    let (config, now) = (console.config.load(), UnixMs::now());
    let search = q.trim().to_ascii_lowercase();
    // A pattern stands for names that nobody has listed.
    let named = config.models.iter().filter(|model| !model.is_wildcard());
    let found = named.filter(|model| model.id.to_ascii_lowercase().contains(&search));
    let found: Vec<_> = found.collect();
    let priced = found.iter().take(MODELS_MAX).map(|model| {
        let named = (&***model, &*model.id);
        let prices = pricing::prices_for(&console.ledger, customer.account.id, named, now);
        let price = pricing::pricing(model, &prices);
        let all = price_lines(&price).into_iter();
        let (lines, conditional) = all.partition(|line| line.when.is_empty());
        let version = price["version"].as_str().unwrap_or_default().to_owned();
        PricedModel { id: model.id.to_string(), version, lines, conditional }
    });
    let shown = PricesPage {
        frame: customer.frame(&console, "/prices"),
        models: priced.collect(),
        left_out: found.len().saturating_sub(MODELS_MAX),
        search: q.trim().to_owned(),
    };
    Ok(HtmlPage(shown).into_response())
}
