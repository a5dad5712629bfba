//! Active health checks: an upstream that fails them gets no calls until it passes them again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::HOST;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use tollgate_outbound::{AllowedAddresses, DialError, Dialer};

use crate::balance::{Balancer, UpstreamState};
use crate::config::ConfigHandle;
use crate::config::snapshot::{HealthCheck, Upstream};
use crate::gateway::upstream::connectors::Connectors;
use crate::metrics::Metrics;

/// Interval of checks for a new configuration.
const CONFIG_POLL: Duration = Duration::from_secs(1);

/// Share of the check's timeout for the connection, so that a failure to connect is reported as such.
const CONNECT_SHARE: f64 = 0.9;

/// Checks the upstreams that the running configuration wants checked, until it is dropped.
pub async fn check_upstreams(
    config: Arc<ConfigHandle>,
    balancer: Arc<Balancer>,
    connectors: Arc<Connectors>,
    metrics: Arc<Metrics>,
) {
    loop {
        let snapshot = config.load();
        let table = balancer.table(&snapshot);
        let mut checks = JoinSet::new();
        for (name, upstream) in &snapshot.upstreams {
            let Some(state) = table.upstream(name).cloned() else { continue };
            match &upstream.health_check {
                Some(rules) => {
                    let dialer = Arc::clone(connectors.dialer());
                    let probe = HealthProbe {
                        upstream: Arc::clone(upstream),
                        rules: rules.clone(),
                        dialer,
                    };
                    checks.spawn(check(probe, state, Arc::clone(&metrics)));
                }
                // Nothing would find it in order again.
                None => {
                    state.set_healthy(true);
                }
            }
        }
        while Arc::ptr_eq(&snapshot, &config.load()) {
            tokio::time::sleep(CONFIG_POLL).await;
        }
    }
}

/// The check of one upstream.
struct HealthProbe {
    upstream: Arc<Upstream>,
    rules: HealthCheck,
    dialer: Arc<Dialer>,
}

/// The reason of a failed check.
enum ProbeFailure {
    /// No connection could be opened.
    NotConnected(DialError),
    /// The answer is not a good one, or there is none.
    Answer(String),
}

async fn check(probe: HealthProbe, state: Arc<UpstreamState>, metrics: Arc<Metrics>) {
    let HealthProbe { upstream, rules, .. } = &probe;
    let (mut passed, mut failed) = (0_u32, 0_u32);
    loop {
        // Not all at once, and not all gateways at once.
        tokio::time::sleep(rules.interval.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
        match tokio::time::timeout(rules.timeout, probe.run()).await {
            Ok(Ok(())) => {
                (passed, failed) = (passed.saturating_add(1), 0);
                if passed >= rules.healthy_after && state.set_healthy(true) {
                    log::info!("{} passes its health check again", upstream.name);
                }
            }
            // Nothing was learned of the upstream.
            Ok(Err(ProbeFailure::NotConnected(error))) if error.exhausted().is_some() => {
                metrics.connect_failed(&upstream.name, &error);
            }
            outcome => {
                (passed, failed) = (0, failed.saturating_add(1));
                let cause = match outcome {
                    Ok(Err(ProbeFailure::NotConnected(error))) => {
                        metrics.connect_failed(&upstream.name, &error);
                        error.to_string()
                    }
                    Ok(Err(ProbeFailure::Answer(cause))) => cause,
                    _ => "no answer in time".to_owned(),
                };
                if failed >= rules.unhealthy_after && state.set_healthy(false) {
                    let name = &upstream.name;
                    log::warn!("{name} fails its health check and gets no calls: {cause}");
                }
            }
        }
    }
}

impl HealthProbe {
    /// Connects, as calls do, and asks for a path if there is one.
    async fn run(&self) -> Result<(), ProbeFailure> {
        let Self { upstream, rules, dialer } = self;
        let time = upstream.timeouts.connect.min(rules.timeout.mul_f64(CONNECT_SHARE));
        let dialed = dialer.dial(&upstream.destination, AllowedAddresses::All, time).await;
        let connection = dialed.map_err(ProbeFailure::NotConnected)?;
        let Some(path) = &rules.path else { return Ok(()) };
        let failed = |error: hyper::Error| ProbeFailure::Answer(error.to_string());
        let (mut sender, driver) =
            http1::handshake(TokioIo::new(connection)).await.map_err(failed)?;
        let request = Request::get(path.as_str()).header(HOST, upstream.authority.as_str());
        let request = upstream
            .headers
            .iter()
            .fold(request, |request, own| request.header(&own.name, own.value.expose()));
        let request = request.body(Empty::<Bytes>::new());
        let request = request.map_err(|error| ProbeFailure::Answer(error.to_string()))?;
        let answered = tokio::select! {
            biased;
            answered = sender.send_request(request) => answered,
            ended = driver => match ended {
                Ok(()) => return Err(ProbeFailure::Answer("it closed the connection".to_owned())),
                Err(error) => Err(error),
            },
        };
        let status = answered.map_err(failed)?.status();
        if status.is_server_error() {
            return Err(ProbeFailure::Answer(format!("it answered {status}")));
        }
        Ok(())
    }
}
