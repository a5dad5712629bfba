//! Reloads under load: the latencies with one each second beside those without.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::Plan;
use crate::config::Setup;
use crate::gateway::{Gateway, Upstream};
use crate::report::{Figures, Measure};
use crate::rig::load::{self, Latencies};

/// Requests per second.
pub(crate) const RATE: u32 = 200;
/// A thousand models, and an upstream that thinks for 20 ms.
const SETUP: Setup = Setup { models: 1000, upstream: "/sim:delay-ms=20", ..Setup::PLAIN };
/// From one reload to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// Load before a measurement.
const WARM_UP: Duration = Duration::from_secs(1);
/// Time for accounting and a reload after a turn.
const AFTERMATH: Duration = Duration::from_millis(500);

/// Figures of the turns of one kind.
struct Turns {
    latencies: Latencies,
    cpu: Duration,
    signals: u32,
}

impl Turns {
    fn new() -> anyhow::Result<Self> {
        Ok(Self { latencies: Latencies::new()?, cpu: Duration::ZERO, signals: 0 })
    }
}

/// Loads a gateway in turns with reloads and without.
pub(crate) async fn measure(
    plan: &Plan,
    upstream: &Upstream,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let gateway = Gateway::start(SETUP, upstream).await?;
    let (mut quiet, mut reloading) = (Turns::new()?, Turns::new()?);
    open(&gateway, WARM_UP).await?;
    for _ in 0..plan.open_turns {
        // The signal 0 is none: both kinds of turns do the same beside the gateway.
        turn(&gateway, "0", plan.open, &mut quiet).await?;
        let loaded_before = loaded_at(&gateway).await?;
        turn(&gateway, "HUP", plan.open, &mut reloading).await?;
        ensure!(loaded_at(&gateway).await? > loaded_before, "nothing was reloaded");
    }
    let cpu_ms = (reloading.cpu.as_secs_f64() - quiet.cpu.as_secs_f64()) * 1e3;
    figures.add(Measure::QuietP50, quiet.latencies.quantile_ms(0.50));
    figures.add(Measure::ReloadP50, reloading.latencies.quantile_ms(0.50));
    figures.add(Measure::QuietP99, quiet.latencies.quantile_ms(0.99));
    figures.add(Measure::ReloadP99, reloading.latencies.quantile_ms(0.99));
    figures.add(Measure::QuietFailed, quiet.latencies.failed as f64);
    figures.add(Measure::ReloadFailed, reloading.latencies.failed as f64);
    figures.add(Measure::ReloadCpu, cpu_ms / f64::from(reloading.signals));
    gateway.process.stop()
}

/// Time of the last reload of the configuration, in seconds of Unix time.
async fn loaded_at(gateway: &Gateway) -> anyhow::Result<f64> {
    let successful = gateway.metric("tollgate_config_last_reload_successful").await?;
    ensure!(successful > 0.0, "a reload failed");
    gateway.metric("tollgate_config_last_reload_success_timestamp_seconds").await
}

/// One load, with changed files and a signal each second.
async fn turn(
    gateway: &Gateway,
    signal: &str,
    duration: Duration,
    turns: &mut Turns,
) -> anyhow::Result<()> {
    let cpu_before = gateway.process.cpu()?;
    let begin = Instant::now();
    let signals = async {
        let mut sent = 0;
        // The first in the middle of a second, so that the last is over before the load is.
        while INTERVAL * sent + INTERVAL / 2 < duration {
            let due = begin + INTERVAL * sent + INTERVAL / 2;
            tokio::time::sleep_until(due.into()).await;
            swap(&gateway.files.models, &gateway.files.models_next)?;
            gateway.process.signal(signal)?;
            sent += 1;
        }
        anyhow::Ok(sent)
    };
    let (latencies, sent) = tokio::join!(open(gateway, duration), signals);
    tokio::time::sleep(AFTERMATH).await;
    turns.latencies.add(&latencies?)?;
    turns.cpu += gateway.process.cpu()? - cpu_before;
    turns.signals += sent?;
    Ok(())
}

async fn open(gateway: &Gateway, duration: Duration) -> anyhow::Result<Latencies> {
    let aim = gateway.aim(false);
    tokio::task::spawn_blocking(move || load::open(&aim, RATE, duration)).await?
}

/// Exchanges two files; nobody finds half of one.
fn swap(one: &Path, other: &Path) -> anyhow::Result<()> {
    let aside = one.with_extension("aside");
    std::fs::copy(one, &aside)?;
    std::fs::rename(other, one)?;
    std::fs::rename(&aside, other)?;
    Ok(())
}
