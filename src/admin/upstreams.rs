//! How the upstreams and the targets at them are doing.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::AdminState;
use crate::balance::{Channel, Standing};
use crate::config::snapshot::{Model, Snapshot, Target};
use crate::metrics::{CircuitFigures, UpstreamFigures};

/// Every upstream, and every target at it.
pub(super) async fn list(State(state): State<AdminState>) -> Json<Value> {
    let snapshot = state.config.load();
    let table = state.balancer.table(&snapshot);
    let mut names: Vec<&String> = snapshot.upstreams.keys().collect();
    names.sort();
    let now = Instant::now();
    let one = |name: &String| {
        let upstream = snapshot.upstreams.get(name)?;
        let known = table.upstream(name)?;
        let targets: Vec<Value> = targets_at(&snapshot, name)
            .flat_map(|(model, target)| {
                let channels = table.channels(target).iter();
                channels.map(|channel| shown(&snapshot, model, target, channel, now))
            })
            .collect();
        Some(json!({
            "name": name,
            "protocol": upstream.dialect.as_str(),
            "authority": upstream.authority,
            "healthy": known.is_healthy(),
            "in_flight": known.in_flight(),
            "targets": targets,
        }))
    };
    let upstreams: Vec<Value> = names.into_iter().filter_map(one).collect();
    Json(json!({ "upstreams": upstreams }))
}

/// The same as metrics.
pub(super) fn figures(state: &AdminState) -> (Vec<UpstreamFigures>, Vec<CircuitFigures>) {
    let snapshot = state.config.load();
    let table = state.balancer.table(&snapshot);
    let (now, rules) = (Instant::now(), &snapshot.balancing.circuit);
    let mut upstreams = Vec::with_capacity(snapshot.upstreams.len());
    let mut circuits = Vec::new();
    for name in snapshot.upstreams.keys() {
        let Some(known) = table.upstream(name) else { continue };
        let (healthy, in_flight) = (known.is_healthy(), known.in_flight());
        upstreams.push(UpstreamFigures { upstream: name.clone(), healthy, in_flight });
        for (model, target) in targets_at(&snapshot, name) {
            circuits.extend(table.channels(target).iter().map(|channel| CircuitFigures {
                model: model.id.to_string(),
                upstream: name.clone(),
                target: target.model.clone().unwrap_or_default(),
                credential: credential(channel).to_owned(),
                state: match channel.standing(now, rules) {
                    Standing::Ready { .. } | Standing::Cooling => 0,
                    Standing::ProbeDue | Standing::Probing => 1,
                    Standing::Busy(_) | Standing::Open(_) => 2,
                },
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

fn shown(
    snapshot: &Snapshot,
    model: &Model,
    target: &Target,
    channel: &Channel,
    now: Instant,
) -> Value {
    let (state, seconds, share) = match channel.standing(now, &snapshot.balancing.circuit) {
        Standing::Ready { share } if share < 1.0 => ("slow_start", None, Some(share)),
        Standing::Ready { .. } => ("ready", None, None),
        Standing::Cooling => ("cooling", None, None),
        Standing::ProbeDue => ("probe_due", None, None),
        Standing::Probing => ("probing", None, None),
        Standing::Busy(time) => ("busy", Some(time.as_secs_f64()), None),
        Standing::Open(time) => ("open", Some(time.as_secs_f64()), None),
    };
    let last_failure = channel
        .last_failure()
        .map(|(at, outcome)| json!({"at": at.to_rfc3339(), "outcome": outcome.as_str()}));
    json!({
        "model": model.id,
        "target": target.model,
        "credential": credential(channel),
        "priority": target.priority,
        "weight": target.weight,
        "state": state,
        "for_seconds": seconds,
        "share": share,
        "in_flight": channel.in_flight(),
        "last_failure": last_failure,
    })
}
