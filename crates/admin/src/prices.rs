//! Customers' own prices, and the price versions that calls were charged by.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::AdminState;
use super::accounts::find;
use super::caller::Caller;
use super::error::{ApiError, ApiResult};
use super::request::{Body, ListView, PageQuery, Params, PathNames};
use super::value::{GROUP_PATTERN, Time};
use tollgate_ledger::{AccountPrices, IfMatch, PriceGroup, PriceNote};
use tollgate_money::money::{Factor, Rate};
use tollgate_money::price::{PriceRule, PriceTerms, PriceVersion, PricedUnit, RULES_MAX, UNITS};

/// A rule for the prices of some models: a factor on the list prices, or fixed prices.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PriceRule")]
#[schemars(extend("oneOf" = [{"required": ["factor"]}, {"required": ["prices"]}]))]
#[serde(deny_unknown_fields)]
pub(super) struct RuleBody {
    /// A model name, a prefix with an asterisk, or an asterisk for all models. The most specific rule
    /// applies.
    #[schemars(extend("pattern" = "^[A-Za-z0-9_.:/@-]{0,127}[A-Za-z0-9_.:/@*-]$"))]
    pub(super) models: String,
    /// Factor of every list price: 0 to 1000, with six decimals at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^([0-9]{1,3}(\\.[0-9]{1,6})?|1000)$"))]
    pub(super) factor: Option<String>,
    /// Fixed prices in US dollars, by the names of `models.yaml`, under all conditions. Units that are not
    /// named keep their list price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) prices: Option<BTreeMap<String, String>>,
    /// Begin of the rule; omitted for immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<Time>,
    /// End of the rule, exclusive; omitted for no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Time>,
}

impl From<&PriceRule> for RuleBody {
    fn from(rule: &PriceRule) -> Self {
        let (factor, prices) = match &rule.terms {
            PriceTerms::Factor(factor) => (Some(factor.to_string()), None),
            PriceTerms::Prices(prices) => {
                let typed = |one: &PricedUnit| {
                    let info = one.unit.info();
                    (info.price.to_owned(), one.rate.dollars(info.per))
                };
                (None, Some(prices.iter().map(typed).collect()))
            }
        };
        let (from, until) = (rule.from.map(Time), rule.until.map(Time));
        Self { models: rule.models.clone(), factor, prices, from, until }
    }
}

impl RuleBody {
    /// The rule; `at` is its place in the list.
    pub(super) fn read(self, at: usize) -> ApiResult<PriceRule> {
        let invalid = |field: &str, message: String| {
            let place = format!("rules[{at}]{field}");
            Err(ApiError::invalid(place, message))
        };
        let terms = match (self.factor, self.prices) {
            (Some(factor), None) => match Factor::parse(&factor) {
                Some(factor) => PriceTerms::Factor(factor),
                None => {
                    let message = "`factor` is a number from 0 to 1000 with six decimals at most.";
                    return invalid(".factor", message.to_owned());
                }
            },
            (None, Some(typed)) => {
                let mut prices = Vec::with_capacity(typed.len());
                for (name, text) in typed {
                    // A misspelt unit is refused: passed over, the customer would pay the list price
                    // unnoticed.
                    let Some(info) = UNITS.iter().find(|info| info.price == name) else {
                        let message = format!("`{name}` is no price of models.yaml.");
                        return invalid(".prices", message);
                    };
                    let Some(rate) = Rate::parse(&text, info.per) else {
                        let message = format!(
                            "`{name}` is dollars as a decimal, such as \"1.25\", not {text:?}."
                        );
                        return invalid(".prices", message);
                    };
                    prices.push(PricedUnit { unit: info.unit, rate });
                }
                PriceTerms::Prices(prices)
            }
            _ => {
                let message = "A rule has either a `factor` or `prices`.";
                return invalid("", message.to_owned());
            }
        };
        let (from, until) = (self.from.map(|time| time.0), self.until.map(|time| time.0));
        let rule = PriceRule { models: self.models, terms, from, until };
        // The ledger's own check, so that the API, the console and the journal accept the same rules.
        match rule.fault() {
            None => Ok(rule),
            Some(fault) => invalid("", format!("{fault}.")),
        }
    }
}

/// The rules that a body has.
fn rules(bodies: Vec<RuleBody>) -> ApiResult<Vec<PriceRule>> {
    bodies.into_iter().enumerate().map(|(at, body)| body.read(at)).collect()
}

/// Rules of an account's prices: its own, then those of its group.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AccountPrices")]
#[serde(deny_unknown_fields)]
pub(super) struct PricesBody {
    /// Price group whose rules apply where none of the account's own does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = GROUP_PATTERN))]
    group: Option<String>,
    /// Price rules of the account.
    #[schemars(extend("maxItems" = RULES_MAX))]
    rules: Vec<RuleBody>,
}

impl From<&AccountPrices> for PricesBody {
    fn from(prices: &AccountPrices) -> Self {
        let rules = prices.rules.iter().map(RuleBody::from).collect();
        Self { group: prices.group.clone(), rules }
    }
}

/// `GET /admin/v1/accounts/{account}/prices`, those of the account itself.
pub(super) async fn show(
    State(state): State<AdminState>,
    PathNames(account): PathNames<String>,
) -> ApiResult<Json<PricesBody>> {
    let account = find(&state, &account)?.id;
    Ok(Json(PricesBody::from(&*state.ledger.account_prices(account))))
}

/// `PUT /admin/v1/accounts/{account}/prices`, for calls that come from now on.
pub(super) async fn put(
    State(state): State<AdminState>,
    PathNames(account): PathNames<String>,
    caller: Caller,
    Body(new): Body<PricesBody>,
) -> ApiResult<Json<PricesBody>> {
    let account = find(&state, &account)?.id;
    let prices = AccountPrices { group: new.group, rules: rules(new.rules)? };
    let by = caller.by(&state);
    // PUT replaces whatever is there; only the console's forms compare with what they showed.
    let written = by.set_account_prices(account, prices, IfMatch::Anything).await?;
    Ok(Json(PricesBody::from(&*written.value)))
}

/// The rules of a price group to be set.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewGroup {
    #[schemars(extend("maxItems" = RULES_MAX))]
    rules: Vec<RuleBody>,
}

/// Price rules that accounts share.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PriceGroup")]
pub(super) struct GroupView {
    name: String,
    rules: Vec<RuleBody>,
    /// Time at which the rules were set.
    at: Time,
}

impl From<&PriceGroup> for GroupView {
    fn from(group: &PriceGroup) -> Self {
        let rules = group.rules.iter().map(RuleBody::from).collect();
        Self { name: group.name.clone(), rules, at: group.at.into() }
    }
}

/// All price groups, by their names.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PriceGroups")]
pub(super) struct Groups {
    data: Vec<GroupView>,
}

/// `GET /admin/v1/price-groups`, by their names.
pub(super) async fn groups(State(state): State<AdminState>) -> Json<Groups> {
    let groups = state.ledger.price_groups();
    Json(Groups { data: groups.iter().map(|group| GroupView::from(&**group)).collect() })
}

/// `PUT /admin/v1/price-groups/{group}`, for calls that come from now on.
pub(super) async fn put_group(
    State(state): State<AdminState>,
    PathNames(group): PathNames<String>,
    caller: Caller,
    Body(new): Body<NewGroup>,
) -> ApiResult<Json<GroupView>> {
    let (by, rules) = (caller.by(&state), rules(new.rules)?);
    let written = by.set_price_group(&group, rules, IfMatch::Anything).await?;
    Ok(Json(GroupView::from(&*written.value)))
}

/// A price that calls were charged at.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ChargedPrice")]
pub(super) struct ChargedPrice {
    /// Version of the price, which the entries of calls name.
    version: PriceVersion,
    /// The public id of the model.
    model: Arc<str>,
    /// Sources of the prices: `models.yaml`, rules of accounts and of groups, in the order of precedence.
    sources: Vec<String>,
    /// The prices, as `GET /v1/models` shows them.
    #[schemars(with = "serde_json::Value")]
    pricing: Box<RawValue>,
    /// Time of the first call charged at this price.
    since: Time,
}

impl ChargedPrice {
    /// The price of these notes, which have one version: the oldest comes first.
    fn from_notes(notes: &[PriceNote]) -> Option<Self> {
        let first = notes.first()?;
        Some(Self {
            version: first.version,
            model: Arc::clone(&first.model),
            sources: notes.iter().map(|note| note.source.clone()).collect(),
            pricing: RawValue::from_string(first.pricing.clone()).ok()?,
            since: first.at.into(),
        })
    }
}

/// `GET /admin/v1/prices`: those of calls of this node.
pub(super) async fn charged(
    State(state): State<AdminState>,
    Params(page): Params<PageQuery<PriceVersion>>,
) -> ApiResult<Json<ListView<ChargedPrice, PriceVersion>>> {
    let mut notes = state.ledger.prices().await?;
    notes.sort_by_key(|note| (note.version, note.at));
    let versions = notes.chunk_by(|one, other| one.version == other.version);
    let mut prices: Vec<_> = versions.filter_map(ChargedPrice::from_notes).collect();
    prices.sort_by_key(|price| (std::cmp::Reverse(price.since.0), price.version));
    Ok(Json(page.list(prices, |price| price.version, |price| price)?))
}
