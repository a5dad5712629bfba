//! Requests that are answered at once, on gateways that differ in one thing each: what that thing
//! costs.

use std::time::Duration;

use crate::Plan;
use crate::config::Setup;
use crate::gateway::{Gateway, Upstream};
use crate::h2;
use crate::report::{Figures, Measure};
use crate::rig::load::{self, Aim, Throughput};

/// Connections of HTTP/1.1, and requests at a time over HTTP/2.
pub(crate) const CONNECTIONS: usize = 64;
/// Load before a measurement, which fills pools and caches.
const WARM_UP: Duration = Duration::from_millis(300);
/// Time between a load and the reading of CPU time: settlements that are written later are part of a
/// request's cost.
const AFTERMATH: Duration = Duration::from_millis(250);
/// Closed loops come in this many slices, the gateways in turns: the clock of a machine that is
/// shared changes from second to second, and all must meet the same one.
const SLICES: u32 = 6;

const MANY_MODELS: Setup = Setup { models: 1000, ..Setup::PLAIN };
const MANY_KEYS: Setup = Setup { accounts: 1000, ..Setup::PLAIN };
const LIMITED: Setup = Setup { limited: true, ..Setup::PLAIN };

/// One load on one gateway, and what it came to.
struct Lane<'a> {
    gateway: &'a Gateway,
    load: Load,
    cpu_ms: Measure,
    throughput: Option<Measure>,
    requests: u64,
    took: Duration,
    cpu: Duration,
}

enum Load {
    Http1(Aim),
    Tls(h2::Client),
}

impl Load {
    /// Opens what would not be opened anew for each slice of production traffic: the handshakes of
    /// TLS, which are worth many requests.
    async fn prepare(&mut self) -> anyhow::Result<()> {
        if let Self::Tls(client) = self {
            client.connect().await?;
            tokio::time::sleep(AFTERMATH).await;
        }
        Ok(())
    }

    async fn run(&self, duration: Duration) -> anyhow::Result<Throughput> {
        match self {
            Self::Http1(aim) => load::closed(aim, CONNECTIONS, duration).await,
            Self::Tls(client) => client.closed(duration).await,
        }
    }
}

impl<'a> Lane<'a> {
    fn new(gateway: &'a Gateway, load: Load, cpu_ms: Measure) -> Self {
        let (took, cpu) = (Duration::ZERO, Duration::ZERO);
        Self { gateway, load, cpu_ms, throughput: None, requests: 0, took, cpu }
    }

    fn http1(gateway: &'a Gateway, cpu_ms: Measure) -> Self {
        Self::new(gateway, Load::Http1(gateway.aim(false)), cpu_ms)
    }

    async fn slice(&mut self, duration: Duration) -> anyhow::Result<()> {
        self.load.prepare().await?;
        let before = self.gateway.process.cpu()?;
        let slice = self.load.run(duration).await?;
        tokio::time::sleep(AFTERMATH).await;
        self.requests += slice.requests;
        self.took += slice.took;
        self.cpu += self.gateway.process.cpu()? - before;
        Ok(())
    }
}

/// Puts the load on each gateway, slice by slice in turns.
pub(crate) async fn measure(
    plan: &Plan,
    upstream: &Upstream,
    round: u32,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let plain = Gateway::start(Setup::PLAIN, upstream).await?;
    let models = Gateway::start(MANY_MODELS, upstream).await?;
    let keys = Gateway::start(MANY_KEYS, upstream).await?;
    let limited = Gateway::start(LIMITED, upstream).await?;
    let tls = Load::Tls(h2::Client::new(&plain)?);
    let mut lanes = [
        Lane {
            throughput: Some(Measure::PlainThroughput),
            ..Lane::http1(&plain, Measure::PlainCpu)
        },
        Lane {
            throughput: Some(Measure::TlsThroughput),
            ..Lane::new(&plain, tls, Measure::TlsCpu)
        },
        Lane::http1(&models, Measure::ModelsCpu),
        Lane::http1(&keys, Measure::KeysCpu),
        Lane::http1(&limited, Measure::LimitedCpu),
    ];
    // Who comes first changes from round to round.
    if round.is_multiple_of(2) {
        lanes.reverse();
    }
    for lane in &mut lanes {
        lane.load.prepare().await?;
        lane.load.run(WARM_UP).await?;
    }
    tokio::time::sleep(AFTERMATH).await;
    for _ in 0..SLICES {
        for lane in &mut lanes {
            lane.slice(plan.closed / SLICES).await?;
        }
    }
    for lane in &lanes {
        let requests = lane.requests as f64;
        figures.add(lane.cpu_ms, lane.cpu.as_secs_f64() * 1e3 / requests);
        if let Some(measure) = lane.throughput {
            figures.add(measure, requests / lane.took.as_secs_f64());
        }
    }
    drop(lanes);
    for gateway in [plain, models, keys, limited] {
        gateway.process.stop()?;
    }
    Ok(())
}
