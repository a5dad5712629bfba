//! Targets that a request would try, with reasons.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::error::{ApiError, ApiResult};
use super::request::Params;
use tollgate_balance::{CandidateView, CircuitStanding as Standing};
use tollgate_config::snapshot::{Model, Target, TargetCost};
use tollgate_ledger::{Key, KeyId};
use tollgate_protocols::Operation;
use tollgate_protocols::codec_choice::{CodecChoice, CodecKind};

/// Account, key and model of the request to explain.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainQuery {
    /// Name of the model as customers use it.
    pub(super) model: String,
    /// Id of the key; default any key.
    pub(super) key: Option<KeyId>,
}

/// Outcome of a request, as predicted.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RouteExplained")]
pub(super) struct Explanation {
    pub(super) model: String,
    pub(super) operations: Vec<&'static str>,
    /// Operations whose requests are translated for its upstreams.
    pub(super) translated: Vec<&'static str>,
    /// Reason why the key would be refused.
    pub(super) refused: Option<&'static str>,
    pub(super) affinity: &'static str,
    pub(super) targets: Vec<ExplainedTarget>,
    /// Fallback models in order, used when no target can serve the request.
    pub(super) fallbacks: Vec<ExplainedFallback>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ExplainedFallback {
    pub(super) model: String,
    /// Reason why all requests for the model are refused.
    pub(super) refused: Option<&'static str>,
    pub(super) targets: Vec<ExplainedTarget>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ExplainedTarget {
    pub(super) upstream: String,
    /// The model's name at the upstream.
    pub(super) target: String,
    /// Operations whose requests are translated for this target. Targets that need no translation come first.
    pub(super) translated: Vec<&'static str>,
    pub(super) credential: String,
    pub(super) priority: u32,
    pub(super) weight: u32,
    pub(super) in_flight: u32,
    /// Operator's cost at the target, by the names of `models.yaml`; `null` if unknown.
    pub(super) cost: Option<String>,
    /// Current share of calls, in percent.
    pub(super) percent: f64,
    pub(super) why: String,
}

/// `GET /admin/v1/route`
pub(super) async fn route(
    State(state): State<AdminState>,
    Params(query): Params<ExplainQuery>,
) -> ApiResult<Json<Explanation>> {
    explain(&state, &query).map(Json)
}

/// Explains a route for the pages of the operators' console.
pub(super) fn explain(state: &AdminState, query: &ExplainQuery) -> ApiResult<Explanation> {
    let snapshot = state.config.load();
    let Some(model) = snapshot.model(&query.model) else {
        return Err(ApiError::not_found("No model of `models.yaml` has this name."));
    };
    let key = match query.key {
        None => None,
        Some(id) => {
            let unknown = || ApiError::not_found("There is no key with this id.");
            Some(state.ledger.key_by_id(id).ok_or_else(unknown)?)
        }
    };
    let refusal = match &key {
        Some(key) if key.disabled => Some("the key is disabled"),
        Some(key) if key.is_expired(tollgate_types::clock::UnixMs::now()) => {
            Some("the key has expired")
        }
        key => unlisted(key.as_deref(), &query.model, model),
    };
    // One table and one moment for the model and its fallbacks, so that the answer does not contradict
    // itself.
    let (table, now) = (state.balancer.table(&snapshot), Instant::now());
    let account = key.as_ref().map(|key| key.account.number());
    let targets = |model: &Model| {
        explained(model, &table.candidate_views(model, account, now, &snapshot.balancing.circuit))
    };
    let fallback = |id: &Arc<str>| {
        // A fallback is named by id; a pattern that happens to match its name does not serve it.
        let served = snapshot.model(id).filter(|model| model.id == *id);
        ExplainedFallback {
            model: id.to_string(),
            refused: match served {
                None => Some("nothing serves it now"),
                Some(model) => unlisted(key.as_deref(), id, model),
            },
            targets: served.map(|model| targets(model)).unwrap_or_default(),
        }
    };
    Ok(Explanation {
        model: model.id.to_string(),
        operations: model.operations.iter().map(|one| one.as_str()).collect(),
        translated: model.translated.iter().map(|one| one.as_str()).collect(),
        refused: refusal,
        affinity: snapshot.balancing.affinity.as_str(),
        targets: targets(model),
        fallbacks: model.fallbacks.iter().map(fallback).collect(),
    })
}

/// Reason why the key may not use the model by this name.
fn unlisted(key: Option<&Key>, name: &str, model: &Model) -> Option<&'static str> {
    let is_unlisted = key.is_some_and(|key| !key.may_use(name, &model.id));
    is_unlisted.then_some("the key's list of models does not have it")
}

fn explained(model: &Model, views: &[CandidateView<'_>]) -> Vec<ExplainedTarget> {
    let getting = views.iter().filter(|view| view.share > 0.0);
    let first = getting.map(|view| view.target.priority).min();
    let one = |view: &CandidateView<'_>| {
        let credential = view.channel.credential.as_ref().map_or("", |one| one.name.as_str());
        ExplainedTarget {
            upstream: view.target.upstream.name.clone(),
            target: view.target.model.as_deref().unwrap_or(&model.id).to_owned(),
            translated: translated(model, view.target),
            credential: credential.to_owned(),
            priority: view.target.priority,
            weight: view.target.weight,
            in_flight: view.channel.in_flight(),
            cost: view.target.cost.as_ref().map(cost),
            percent: (100.0 * view.share).round(),
            why: why(view, first),
        }
    };
    views.iter().map(one).collect()
}

/// The operations whose requests are translated for a target.
fn translated(model: &Model, target: &Target) -> Vec<&'static str> {
    let dialect = target.upstream.dialect;
    let Model { operations, limits, .. } = model;
    let is_translated = |operation: &Operation| {
        let codec_choice = CodecChoice { operation: *operation, dialect, operations, limits };
        codec_choice.kind() == Some(CodecKind::Translated)
    };
    model.served().filter(is_translated).map(Operation::as_str).collect()
}

/// Cost of a target in words.
fn cost(cost: &TargetCost) -> String {
    let list = match cost {
        TargetCost::Reported => return "as its upstream reports".to_owned(),
        TargetCost::Prices(list) => list,
    };
    let costs = list.base.explicit();
    let costs = costs.map(|(info, rate)| format!("{}: {}", info.price, rate.dollars(info.per)));
    costs.collect::<Vec<_>>().join(", ")
}

fn why(view: &CandidateView<'_>, first: Option<u32>) -> String {
    let gets_calls = view.share > 0.0;
    match view.standing {
        Standing::Ready { share } if gets_calls && share < 1.0 => {
            format!("it has recovered and gets {:.0} % of its weight", share * 100.0)
        }
        Standing::Ready { .. } if gets_calls => {
            "it is in order and of the best priority".to_owned()
        }
        Standing::Ready { .. } => {
            format!("only when no target of priority {} is left", first.unwrap_or_default())
        }
        Standing::Cooling if gets_calls => {
            "it was busy a moment ago, and no other is in order".to_owned()
        }
        Standing::Cooling => "it was busy a moment ago: only when no other is left".to_owned(),
        Standing::Busy(time) => {
            format!("it has asked for time: {:.1} s are left", time.as_secs_f64())
        }
        Standing::Open(time) if time.is_zero() => "it fails its health check".to_owned(),
        Standing::Open(time) => {
            format!("calls to it failed: it gets none for {:.1} s", time.as_secs_f64())
        }
        Standing::ProbeDue => "the next call finds out whether it works again".to_owned(),
        Standing::Probing => "a call is finding out whether it works again".to_owned(),
    }
}
