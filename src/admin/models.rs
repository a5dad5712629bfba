//! The models that are configured: where they are served, what they cost and what they take.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::AdminState;
use super::limits::RatesView;
use crate::config::snapshot::{Model, Target};
use crate::money::Rate;
use crate::price::{Prices, Traits};

/// Every model, in the order of `models.yaml`.
#[derive(Serialize, JsonSchema)]
pub(super) struct Models {
    data: Vec<ModelView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Model")]
struct ModelView {
    /// What customers call it; a pattern ends in an asterisk.
    id: String,
    owned_by: String,
    operations: Vec<&'static str>,
    /// Where it is served, best first.
    targets: Vec<ModelTarget>,
    prices: PricesView,
    /// Prices of requests that meet a condition; the first that is met counts.
    prices_when: Vec<PricesWhen>,
    /// Tokens of input that it takes; 0 where they are not counted.
    input_tokens_max: u64,
    /// Tokens that it puts out in one answer; 0 where they are not counted.
    output_tokens_max: u64,
    /// How much all customers together may use it.
    limits: RatesView,
}

#[derive(Serialize, JsonSchema)]
struct ModelTarget {
    upstream: String,
    /// The upstream's name for the model; `null` for the name that the customer used.
    model: Option<String>,
    priority: u32,
    weight: u32,
}

/// What a unit costs in US dollars, exact, by the names of `models.yaml`. `0.00` where there is no
/// price.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Prices")]
struct PricesView {
    input_per_1m_tokens: String,
    cached_input_per_1m_tokens: String,
    cache_write_per_1m_tokens: String,
    cache_write_1h_per_1m_tokens: String,
    output_per_1m_tokens: String,
    per_image: String,
    per_second: String,
    per_1m_characters: String,
}

#[derive(Serialize, JsonSchema)]
struct PricesWhen {
    when: Condition,
    prices: PricesView,
}

/// What a request must ask for; `null` where it does not matter.
#[derive(Serialize, JsonSchema)]
struct Condition {
    resolution: Option<&'static str>,
    /// Width by height.
    size: Option<String>,
    quality: Option<&'static str>,
    audio: Option<bool>,
    draft: Option<bool>,
    video_input: Option<bool>,
}

/// `GET /admin/v1/models`
pub(super) async fn list(State(state): State<AdminState>) -> Json<Models> {
    let snapshot = state.config.load();
    Json(Models { data: snapshot.models.iter().map(|model| ModelView::of(model)).collect() })
}

impl ModelView {
    fn of(model: &Model) -> Self {
        let when = model.prices.when.iter();
        Self {
            id: model.id.to_string(),
            owned_by: model.owned_by.clone(),
            operations: model.operations.iter().map(|one| one.as_str()).collect(),
            targets: model.targets.iter().map(|target| ModelTarget::of(target)).collect(),
            prices: PricesView::of(&model.prices.base),
            prices_when: when
                .map(|(when, prices)| PricesWhen {
                    when: Condition::of(when),
                    prices: PricesView::of(prices),
                })
                .collect(),
            input_tokens_max: model.limits.input_tokens_max,
            output_tokens_max: model.limits.output_tokens_max,
            limits: model.rates.into(),
        }
    }
}

impl ModelTarget {
    fn of(target: &Target) -> Self {
        Self {
            upstream: target.upstream.name.clone(),
            model: target.model.clone(),
            priority: target.priority,
            weight: target.weight,
        }
    }
}

impl PricesView {
    fn of(prices: &Prices) -> Self {
        Self {
            input_per_1m_tokens: per_million(prices.input),
            cached_input_per_1m_tokens: per_million(prices.cache_read),
            cache_write_per_1m_tokens: per_million(prices.cache_write),
            cache_write_1h_per_1m_tokens: per_million(prices.cache_write_1h),
            output_per_1m_tokens: per_million(prices.output),
            per_image: prices.image.dollars(1),
            per_second: prices.second.dollars(1),
            per_1m_characters: per_million(prices.character),
        }
    }
}

fn per_million(rate: Rate) -> String {
    rate.dollars(1_000_000)
}

impl Condition {
    fn of(when: &Traits) -> Self {
        Self {
            resolution: when.resolution.map(|one| one.as_str()),
            size: when.size.map(|size| format!("{}x{}", size.width, size.height)),
            quality: when.quality.map(|one| one.as_str()),
            audio: when.audio,
            draft: when.draft,
            video_input: when.video_input,
        }
    }
}
