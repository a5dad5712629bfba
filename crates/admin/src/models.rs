//! The models that are configured: where they are served, what they cost and what they take.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::AdminState;
use super::limits::RatesView;
use tollgate_config::snapshot::{Model, Target};

use tollgate_money::each_unit;
use tollgate_money::price::{Condition as PriceCondition, PriceVersion, Prices, Unit};
use tollgate_pricing as pricing;

/// Every model, in the order of `models.yaml`.
#[derive(Serialize, JsonSchema)]
#[serde(rename = "Models")]
pub(super) struct ModelsView {
    data: Vec<ModelView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Model")]
struct ModelView {
    /// Name for customers; a pattern ends in an asterisk.
    id: String,
    owned_by: String,
    operations: Vec<&'static str>,
    /// Operations whose requests are translated for its upstreams.
    translated: Vec<&'static str>,
    /// Targets, best first.
    targets: Vec<ModelTarget>,
    prices: PricesView,
    /// The version of the prices, which the entries of calls name.
    price_version: PriceVersion,
    /// Prices of requests that meet a condition; the first that is met counts.
    prices_when: Vec<PricesWhenView>,
    /// Input limit in tokens; 0 if not limited by tokens.
    input_tokens_max: u64,
    /// Output limit in tokens; 0 if not limited by tokens.
    output_tokens_max: u64,
    /// Limits of the model over all customers.
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

macro_rules! prices_view {
    ($(
        $(#[$doc:meta])* $unit:ident: $name:ident,
        $(#[$rate_doc:meta])* $rate:ident,
        $(#[$price_doc:meta])* $price:ident: $typed:ident,
        $info:tt;
    )+) => {
        /// Prices of the units in US dollars, exact, by the names of `models.yaml`. `0.00` where there is no
        /// price.
        #[derive(Serialize, JsonSchema)]
        #[schemars(rename = "Prices")]
        struct PricesView {
            $($price: String),+
        }

        impl PricesView {
            fn from_prices(prices: &Prices) -> Self {
                let dollars = |unit: Unit| prices[unit].dollars(unit.info().per);
                Self { $($price: dollars(Unit::$unit)),+ }
            }
        }
    };
}

each_unit!(prices_view);

#[derive(Serialize, JsonSchema)]
#[serde(rename = "PricesWhen")]
struct PricesWhenView {
    when: ConditionView,
    prices: PricesView,
}

/// A condition on requests; `null` if the property does not matter.
#[derive(Serialize, JsonSchema)]
#[serde(rename = "Condition")]
struct ConditionView {
    /// Applies above this number of input tokens, including cached ones.
    input_tokens_above: Option<u64>,
    /// Service tier reported in the answer.
    service_tier: Option<&'static str>,
    speed: Option<&'static str>,
    inference_geo: Option<&'static str>,
    /// Applies to requests with thinking enabled.
    thinking: Option<bool>,
    /// Time of day in UTC at which the request arrives, such as `16:30-00:30`.
    time_utc: Option<String>,
    resolution: Option<&'static str>,
    /// Resolution that the price applies to: width by height in pixels.
    size: Option<String>,
    quality: Option<&'static str>,
    audio: Option<bool>,
    draft: Option<bool>,
    video_input: Option<bool>,
}

/// `GET /admin/v1/models`
pub(super) async fn list(State(state): State<AdminState>) -> Json<ModelsView> {
    let snapshot = state.config.load();
    Json(ModelsView {
        data: snapshot.models.iter().map(|model| ModelView::from_config(model)).collect(),
    })
}

impl ModelView {
    fn from_config(model: &Model) -> Self {
        let when = model.prices.list.when.iter();
        Self {
            id: model.id.to_string(),
            owned_by: model.owned_by.clone(),
            operations: model.operations.iter().map(|one| one.as_str()).collect(),
            translated: model.translated.iter().map(|one| one.as_str()).collect(),
            targets: model.targets.iter().map(|target| ModelTarget::from_config(target)).collect(),
            prices: PricesView::from_prices(&model.prices.list.base),
            price_version: pricing::version(model, &model.prices),
            prices_when: when
                .map(|(when, prices)| PricesWhenView {
                    when: ConditionView::from_config(when),
                    prices: PricesView::from_prices(prices),
                })
                .collect(),
            input_tokens_max: model.limits.input_tokens_max,
            output_tokens_max: model.limits.output_tokens_max,
            limits: model.rates.into(),
        }
    }
}

impl ModelTarget {
    fn from_config(target: &Target) -> Self {
        Self {
            upstream: target.upstream.name.clone(),
            model: target.model.clone(),
            priority: target.priority,
            weight: target.weight,
        }
    }
}

impl ConditionView {
    fn from_config(condition: &PriceCondition) -> Self {
        let when = &condition.traits;
        Self {
            input_tokens_above: condition.input_tokens_above,
            service_tier: when.service_tier.map(|one| one.as_str()),
            speed: when.speed.map(|one| one.as_str()),
            inference_geo: when.inference_geo.map(|one| one.as_str()),
            thinking: when.thinking,
            time_utc: condition.time_utc.map(|window| window.to_string()),
            resolution: when.resolution.map(|one| one.as_str()),
            size: when.size.map(|size| format!("{}x{}", size.width, size.height)),
            quality: when.quality.map(|one| one.as_str()),
            audio: when.audio,
            draft: when.draft,
            video_input: when.video_input,
        }
    }
}
