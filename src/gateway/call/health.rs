//! Active health checks, with those of Pingora's load balancer: an upstream that fails them gets no
//! calls until it passes them again.

use std::sync::Arc;
use std::time::Duration;

use pingora::http::RequestHeader;
use pingora::lb::Backend;
use pingora::lb::health_check::{HealthCheck as Probe, HttpHealthCheck, TcpHealthCheck};
use pingora::{Error, ErrorType, Result};
use tokio::task::JoinSet;

use crate::balance::{Addresses, Balancer, UpstreamState};
use crate::config::ConfigHandle;
use crate::config::snapshot::{HealthCheck, Upstream};
use crate::gateway::describe_error;

/// How often a new configuration is looked for.
const CONFIG_POLL: Duration = Duration::from_secs(1);

/// How one upstream is checked.
type Prober = Box<dyn Probe + Send + Sync>;

/// Checks the upstreams that the running configuration wants checked, until it is dropped.
pub async fn check_upstreams(config: Arc<ConfigHandle>, balancer: Arc<Balancer>) {
    let addresses = Arc::new(Addresses::default());
    loop {
        let snapshot = config.load();
        let table = balancer.table(&snapshot);
        let mut checks = JoinSet::new();
        for (name, upstream) in &snapshot.upstreams {
            let Some(state) = table.upstream(name).cloned() else { continue };
            match &upstream.health_check {
                Some(rules) => {
                    let (upstream, addresses) = (Arc::clone(upstream), Arc::clone(&addresses));
                    checks.spawn(check(upstream, rules.clone(), state, addresses));
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

async fn check(
    upstream: Arc<Upstream>,
    rules: HealthCheck,
    state: Arc<UpstreamState>,
    addresses: Arc<Addresses>,
) {
    let prober = match prober(&upstream, &rules) {
        Ok(prober) => prober,
        Err(error) => return log::error!("{} cannot be checked: {error}", upstream.name),
    };
    let (mut passed, mut failed) = (0_u32, 0_u32);
    loop {
        // Not all at once, and not all gateways at once.
        tokio::time::sleep(rules.interval.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
        match tokio::time::timeout(rules.timeout, ask(&prober, &upstream, &addresses)).await {
            Ok(Ok(())) => {
                (passed, failed) = (passed.saturating_add(1), 0);
                if passed >= rules.healthy_after && state.set_healthy(true) {
                    log::info!("{} passes its health check again", upstream.name);
                }
            }
            outcome => {
                (passed, failed) = (0, failed.saturating_add(1));
                if failed >= rules.unhealthy_after && state.set_healthy(false) {
                    let cause = match outcome {
                        Ok(Err(error)) => describe_error(&error),
                        _ => "no answer in time".to_owned(),
                    };
                    let name = &upstream.name;
                    log::warn!("{name} fails its health check and gets no calls: {cause}");
                }
            }
        }
    }
}

async fn ask(prober: &Prober, upstream: &Upstream, addresses: &Addresses) -> Result<()> {
    let unresolved = |error| Error::because(ErrorType::ConnectError, "its name", error);
    let address = addresses.find(&upstream.host, upstream.port).await.map_err(unresolved)?;
    prober.check(&Backend::new(&address.to_string())?).await
}

fn prober(upstream: &Upstream, rules: &HealthCheck) -> Result<Prober> {
    let Some(path) = &rules.path else {
        let check = if upstream.tls {
            TcpHealthCheck::new_tls(&upstream.host)
        } else {
            TcpHealthCheck::new()
        };
        return Ok(check);
    };
    let mut check = HttpHealthCheck::new(&upstream.host, upstream.tls);
    check.req = RequestHeader::build("GET", path.as_bytes(), None)?;
    check.req.insert_header("host", &upstream.authority)?;
    for own in upstream.headers.iter() {
        check.req.insert_header(own.name.clone(), own.value.expose())?;
    }
    check.peer_template.options.connection_timeout = Some(rules.timeout);
    check.peer_template.options.read_timeout = Some(rules.timeout);
    check.validator = Some(Box::new(|header| {
        if header.status.is_server_error() {
            return Error::e_explain(ErrorType::HTTPStatus(header.status.as_u16()), "not in order");
        }
        Ok(())
    }));
    Ok(Box::new(check))
}
