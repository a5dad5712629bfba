//! Health of the upstreams and of the targets at them.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::AdminState;
use super::value::Time;
use tollgate_balance::{Channel, CircuitStanding as Standing, QuotaKind, QuotaStanding};
use tollgate_config::snapshot::{Credential, Model, Snapshot, Target};
use tollgate_telemetry::metrics::{
    CircuitFigures, ConnectFailure, CredentialFigures, UpstreamFigures,
};

/// Every upstream, by its name.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Upstreams")]
pub(super) struct UpstreamsView {
    pub(super) upstreams: Vec<UpstreamView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Upstream")]
pub(super) struct UpstreamView {
    pub(super) name: String,
    pub(super) protocol: &'static str,
    /// Host, with the port unless it is the default.
    pub(super) authority: String,
    /// Result of its health check.
    pub(super) healthy: bool,
    pub(super) in_flight: u32,
    /// Calls whose client disconnected while the answer is still read for its usage.
    pub(super) orphans: u32,
    /// The last failed connection attempt.
    pub(super) last_connect_failure: Option<ConnectFailureView>,
    pub(super) targets: Vec<TargetView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ConnectFailure")]
pub(super) struct ConnectFailureView {
    pub(super) at: Time,
    /// Reason of the failure, as in `tollgate_upstream_connect_failures_total`.
    pub(super) reason: &'static str,
    /// Upstream that could not be reached, its addresses, and the reason.
    pub(super) text: String,
}

/// A target with one credential of its upstream.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TargetStanding")]
pub(super) struct TargetView {
    pub(super) model: String,
    /// The model's name at the upstream.
    pub(super) target: Option<String>,
    pub(super) credential: String,
    pub(super) priority: u32,
    pub(super) weight: u32,
    pub(super) state: TargetState,
    /// Remaining time for which it is `busy` or `open`.
    pub(super) for_seconds: Option<f64>,
    /// Share of its weight that a target gets during `slow_start`.
    pub(super) share: Option<f64>,
    /// Recently active accounts that get no calls because their own calls failed.
    pub(super) accounts_shut_out: usize,
    /// Kinds of calls that are currently refused while others are served, such as token counts.
    pub(super) shut_kinds: Vec<ShutKindView>,
    /// Paid calls that are in flight.
    pub(super) in_flight: u32,
    /// Remaining lifetime of the token that was issued last for the credential; absent where there is none.
    pub(super) token_seconds: Option<u64>,
    pub(super) last_failure: Option<LastFailure>,
    /// Smallest remaining request quota at the provider, until its reset.
    pub(super) requests_left: Option<u64>,
    /// Smallest remaining token quota at the provider, without quotas for output tokens, until its reset.
    pub(super) tokens_left: Option<u64>,
    /// Remaining quotas as the provider reports them, without expired reports.
    pub(super) quotas: Vec<QuotaView>,
}

/// The operator's quota at a provider, from its last answers to this target.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Quota")]
pub(super) struct QuotaView {
    /// `requests`, `tokens`, `input_tokens`, `output_tokens`, or `long_requests` and `long_tokens` for
    /// those of a day or an hour.
    pub(super) kind: &'static str,
    pub(super) limit: Option<u64>,
    /// Remaining quota, less the calls since the last answer. If it is too small for a request, other targets
    /// are tried first.
    pub(super) remaining: u64,
    /// Seconds until the quota is restored, at most 300.
    pub(super) reset_seconds: f64,
}

impl From<QuotaStanding> for QuotaView {
    fn from(quota: QuotaStanding) -> Self {
        let QuotaStanding { kind, limit, remaining, reset } = quota;
        Self { kind: kind.as_str(), limit, remaining, reset_seconds: reset.as_secs_f64() }
    }
}

/// A kind of call that the target currently refuses while it serves other kinds.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ShutKind")]
pub(super) struct ShutKindView {
    /// Kind of call, such as `token_count`, `compact` or `embeddings`.
    pub(super) kind: &'static str,
    pub(super) state: TargetState,
    /// Remaining time for which it is `busy` or `open`.
    pub(super) for_seconds: Option<f64>,
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum TargetState {
    Ready,
    SlowStart,
    Cooling,
    ProbeDue,
    Probing,
    Busy,
    Open,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct LastFailure {
    pub(super) at: Time,
    pub(super) outcome: &'static str,
}

/// `GET /admin/v1/upstreams`: every upstream, and every target at it.
pub(super) async fn list(State(state): State<AdminState>) -> Json<UpstreamsView> {
    Json(seen(&state))
}

/// All upstreams, for the pages of the operators' console.
pub(super) fn seen(state: &AdminState) -> UpstreamsView {
    let snapshot = state.config.load();
    let table = state.balancer.table(&snapshot);
    let mut names: Vec<&String> = snapshot.upstreams.keys().collect();
    // The map has no order; operators and tests compare two answers line by line.
    names.sort();
    let now = Instant::now();
    let one = |name: &String| {
        let upstream = snapshot.upstreams.get(name)?;
        let health = table.upstream(name)?;
        let targets = targets_at(&snapshot, name)
            .flat_map(|(model, target)| {
                let channels = table.channels(target).iter();
                channels.map(|channel| {
                    let view = shown(&snapshot, model, target, channel, now);
                    TargetView { token_seconds: token_seconds(state, channel), ..view }
                })
            })
            .collect();
        Some(UpstreamView {
            name: name.clone(),
            protocol: upstream.protocol(),
            authority: upstream.authority.to_string(),
            healthy: health.is_healthy(),
            in_flight: health.in_flight(),
            orphans: health.orphans(),
            last_connect_failure: state.metrics.last_connect_failure(name).map(|failure| {
                let ConnectFailure { at, reason, text } = failure;
                ConnectFailureView { at: at.into(), reason, text }
            }),
            targets,
        })
    };
    UpstreamsView { upstreams: names.into_iter().filter_map(one).collect() }
}

/// Remaining lifetimes of the gateway's sign-in tokens, for metrics.
pub(super) fn credential_figures(state: &AdminState) -> Vec<CredentialFigures> {
    let snapshot = state.config.load();
    let all = snapshot.upstreams.values().flat_map(|upstream| {
        let auths = upstream.credentials.iter().filter_map(Credential::auth);
        auths.filter(|auth| auth.is_issued()).map(|auth| {
            let left = state.credentials.standing(auth).and_then(|standing| standing.left);
            CredentialFigures {
                upstream: auth.upstream.clone(),
                credential: auth.credential.clone(),
                left_seconds: i64::try_from(left.unwrap_or_default().as_secs()).unwrap_or(i64::MAX),
            }
        })
    });
    all.collect()
}

/// The states of circuits, as metrics name them.
pub(super) fn figures(state: &AdminState) -> (Vec<UpstreamFigures>, Vec<CircuitFigures>) {
    let snapshot = state.config.load();
    let table = state.balancer.table(&snapshot);
    let (now, rules) = (Instant::now(), &snapshot.balancing.circuit);
    let mut upstreams = Vec::with_capacity(snapshot.upstreams.len());
    let mut circuits = Vec::new();
    for name in snapshot.upstreams.keys() {
        let Some(health) = table.upstream(name) else { continue };
        let (healthy, in_flight) = (health.is_healthy(), health.in_flight());
        upstreams.push(UpstreamFigures { upstream: name.clone(), healthy, in_flight });
        for (model, target) in targets_at(&snapshot, name) {
            circuits.extend(table.channels(target).iter().map(|channel| CircuitFigures {
                model: model.id.to_string(),
                upstream: name.clone(),
                target: target.model.clone().unwrap_or_default(),
                credential: credential(channel).to_owned(),
                state: match channel.standing(None, now, rules) {
                    // docs/metrics.md: 0 receives calls, 1 is probed by one call, 2 receives none.
                    Standing::Ready { .. } | Standing::Cooling => 0,
                    Standing::ProbeDue | Standing::Probing => 1,
                    Standing::Busy(_) | Standing::Open(_) => 2,
                },
                quotas:
                    channel.quotas(now).iter().map(|it| (it.kind.as_str(), it.remaining)).collect(),
            }));
        }
    }
    (upstreams, circuits)
}

fn targets_at<'a>(
    snapshot: &'a Snapshot,
    upstream: &'a str,
) -> impl Iterator<Item = (&'a Model, &'a Target)> {
    let all = snapshot.models.iter().flat_map(|model| {
        let targets = model.targets.iter();
        targets.map(move |target| (model.as_ref(), target.as_ref()))
    });
    all.filter(move |(_, target)| target.upstream.name == upstream)
}

fn credential(channel: &Channel) -> &str {
    channel.credential.as_ref().map_or("", |credential| &credential.name)
}

/// Remaining lifetime of the token that was issued last for a channel's credential.
fn token_seconds(state: &AdminState, channel: &Channel) -> Option<u64> {
    let auth = channel.credential.as_ref()?.auth()?;
    Some(state.credentials.standing(auth)?.left?.as_secs())
}

/// The state of a circuit, and how long it lasts at least.
fn target_state(standing: Standing) -> (TargetState, Option<f64>) {
    match standing {
        Standing::Ready { share } if share < 1.0 => (TargetState::SlowStart, None),
        Standing::Ready { .. } => (TargetState::Ready, None),
        Standing::Cooling => (TargetState::Cooling, None),
        Standing::ProbeDue => (TargetState::ProbeDue, None),
        Standing::Probing => (TargetState::Probing, None),
        Standing::Busy(time) => (TargetState::Busy, Some(time.as_secs_f64())),
        Standing::Open(time) => (TargetState::Open, Some(time.as_secs_f64())),
    }
}

fn shown(
    snapshot: &Snapshot,
    model: &Model,
    target: &Target,
    channel: &Channel,
    now: Instant,
) -> TargetView {
    let rules = &snapshot.balancing.circuit;
    let standing = channel.standing(None, now, rules);
    let (state, for_seconds) = target_state(standing);
    let share = match standing {
        Standing::Ready { share } if share < 1.0 => Some(share),
        _ => None,
    };
    let shut_kinds = channel.shut_kinds(now, rules).into_iter().map(|(kind, standing)| {
        let (state, for_seconds) = target_state(standing);
        ShutKindView { kind: kind.as_str(), state, for_seconds }
    });
    let last_failure = channel
        .last_failure()
        .map(|(at, outcome)| LastFailure { at: at.into(), outcome: outcome.as_str() });
    let quotas = channel.quotas(now);
    let least = |kinds: &[QuotaKind]| {
        let counted = quotas.iter().filter(|quota| kinds.contains(&quota.kind));
        counted.map(|quota| quota.remaining).min()
    };
    TargetView {
        model: model.id.to_string(),
        target: target.model.clone(),
        credential: credential(channel).to_owned(),
        priority: target.priority,
        weight: target.weight,
        state,
        for_seconds,
        share,
        accounts_shut_out: channel.accounts_shut_out(now, rules),
        shut_kinds: shut_kinds.collect(),
        in_flight: channel.in_flight(),
        token_seconds: None,
        last_failure,
        requests_left: least(&[QuotaKind::Requests, QuotaKind::LongRequests]),
        tokens_left: least(&[QuotaKind::Tokens, QuotaKind::InputTokens, QuotaKind::LongTokens]),
        quotas: quotas.into_iter().map(QuotaView::from).collect(),
    }
}
