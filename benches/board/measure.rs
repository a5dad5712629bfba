//! One round: every load, on every subject in turn.

use std::fmt;
use std::time::Duration;

use crate::closed::{self, Load};
use crate::figures::Figures;
use crate::memory;
use crate::rig::load::{self, Aim, Latencies};
use crate::rows::{self, Row};
use crate::subjects::{Bench, Running, Subject};
use crate::work::{self, Work};

/// Streams at one time.
pub(crate) const STREAMS: usize = 200;
/// Requests per second of the open loop.
const RATE: u32 = 200;
/// Time between a load and the reading of CPU time: settlements that are written later are part of a
/// request's cost.
pub(crate) const AFTERMATH: Duration = Duration::from_millis(250);
/// Rest of a proxy after its start: mimalloc keeps for a second what was freed.
pub(crate) const REST: Duration = Duration::from_millis(2500);
/// Time into the streams at which their memory is read.
const STREAMS_MIDDLE: Duration = Duration::from_millis(1000);

/// A group of measurements, which can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Events and memory of streams.
    Streams,
    /// Small chats on 1 to 256 connections.
    Connections,
    /// Latency at a fixed rate.
    Latency,
    /// Native requests of coding agents, and others of 128 KiB and 1 MiB.
    Agents,
    /// Translated requests of coding agents.
    Translated,
    /// Bodies and answers of 1 to 28 MB.
    Bodies,
    /// Memory of requests that wait for their answers.
    Memory,
    /// Instructions, counted with callgrind.
    Instructions,
}

/// Extent of the measurements.
pub(crate) struct Plan {
    pub(crate) rounds: u32,
    pub(crate) closed: Duration,
    open: Duration,
    /// The parts to measure; all if empty.
    only: Vec<Part>,
}

impl Plan {
    pub(crate) fn new(quick: bool, rounds: u32, only: Vec<Part>) -> Self {
        let (closed, open) = if quick { (600, 1000) } else { (2000, 4000) };
        let rounds = if quick { rounds.min(2) } else { rounds };
        let (closed, open) = (Duration::from_millis(closed), Duration::from_millis(open));
        Self { rounds, closed, open, only }
    }

    pub(crate) fn has(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, closed, open, .. } = self;
        write!(
            f,
            "medians over {rounds} rounds, the subjects in turns; closed loops of {closed:?}, open loops of \
             {open:?} at {RATE}/s, {STREAMS} streams"
        )
    }
}

/// Starts the proxies, puts every load on each, and stops them.
pub(crate) async fn round(
    plan: &Plan,
    bench: &Bench,
    round: u32,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let order = bench.order(round);
    let proxies = start(bench, &order).await?;
    for running in &proxies {
        let start_ms = running.start.as_secs_f64() * 1e3;
        figures.add(&rows::START, running.subject, start_ms);
        figures.add(&rows::IDLE_RSS, running.subject, running.process.rss_mb()?);
    }
    // Streams first: their memory is that of a process which has done nothing else.
    if plan.has(Part::Streams) {
        for running in &proxies {
            let rss = Some(&rows::STREAMS_RSS);
            streams(running, &work::STREAM, Some(&rows::CHUNKS_CPU), rss, figures).await?;
        }
        for running in &proxies {
            let cpu = Some(&rows::MESSAGE_CHUNKS_CPU);
            streams(running, &work::MESSAGE_STREAM, cpu, None, figures).await?;
        }
    }
    if plan.has(Part::Connections) {
        loads(plan, bench, &proxies, &closed::SMALL, figures).await?;
        for running in &proxies {
            figures.add(&rows::LOADED_RSS, running.subject, running.process.rss_mb()?);
        }
    }
    if plan.has(Part::Latency) {
        latencies(plan, bench, &proxies, figures).await?;
        figures.add(&rows::FLUSH, Subject::Direct, memory::flush_ms(bench.directory())?);
    }
    if plan.has(Part::Agents) {
        loads(plan, bench, &proxies, &closed::AGENTS, figures).await?;
    }
    if plan.has(Part::Translated) {
        loads(plan, bench, &proxies, &closed::TRANSLATED, figures).await?;
    }
    if plan.has(Part::Bodies) {
        loads(plan, bench, &proxies, &closed::BODIES, figures).await?;
        for running in &proxies {
            let rss = Some(&rows::LATER_STREAMS_RSS);
            streams(running, &work::STREAM, None, rss, figures).await?;
        }
    }
    stop(proxies)?;
    // These have processes of their own: what loads before them left in memory is not theirs.
    if plan.has(Part::Memory) {
        let proxies = start(bench, &order).await?;
        for running in &proxies {
            memory::waiting_requests(running, figures).await?;
        }
        stop(proxies)?;
    }
    if plan.has(Part::Bodies) {
        let proxies = start(bench, &order).await?;
        loads(plan, bench, &proxies, &closed::EDITS, figures).await?;
        stop(proxies)?;
    }
    Ok(())
}

/// Starts the proxies and lets each come to rest: what a start needed in memory is given back.
async fn start(bench: &Bench, order: &[Subject]) -> anyhow::Result<Vec<Running>> {
    let mut proxies = Vec::new();
    for subject in order {
        proxies.push(bench.start(*subject).await?);
        tokio::time::sleep(REST).await;
    }
    Ok(proxies)
}

fn stop(proxies: Vec<Running>) -> anyhow::Result<()> {
    proxies.into_iter().try_for_each(|running| running.process.stop())
}

async fn loads(
    plan: &Plan,
    bench: &Bench,
    proxies: &[Running],
    loads: &[Load],
    figures: &mut Figures,
) -> anyhow::Result<()> {
    for load in loads {
        closed::put(plan, bench, proxies, load, figures).await?;
    }
    Ok(())
}

/// Puts the open loops on everyone, the upstream itself included.
async fn latencies(
    plan: &Plan,
    bench: &Bench,
    proxies: &[Running],
    figures: &mut Figures,
) -> anyhow::Result<()> {
    for (work, p50, p99) in [
        (&work::LATE, &rows::LATE_P50, &rows::LATE_P99),
        (&work::INSTANT, &rows::INSTANT_P50, &rows::INSTANT_P99),
    ] {
        let latencies = open(plan, bench.direct(work)).await?;
        figures.add(p50, Subject::Direct, latencies.quantile_ms(0.50));
        figures.add(p99, Subject::Direct, latencies.quantile_ms(0.99));
        let supporting = proxies.iter().filter(|running| running.supports(work));
        // Its body is too small for buffering to show.
        for running in supporting.filter(|running| running.subject != Subject::Buffered) {
            let before = running.process.cpu()?;
            let latencies = open(plan, running.aim(work)).await?;
            tokio::time::sleep(AFTERMATH).await;
            let took = running.process.cpu()? - before;
            figures.add(p50, running.subject, latencies.quantile_ms(0.50));
            figures.add(p99, running.subject, latencies.quantile_ms(0.99));
            if std::ptr::eq(work, &work::INSTANT) {
                let requests = latencies.histogram.len() as f64;
                let cpu_ms = took.as_secs_f64() * 1e3 / requests;
                figures.add(&rows::CPU_PACED, running.subject, cpu_ms);
            }
        }
    }
    Ok(())
}

async fn open(plan: &Plan, aim: Aim) -> anyhow::Result<Latencies> {
    let duration = plan.open;
    let latencies = tokio::task::spawn_blocking(move || load::open(&aim, RATE, duration)).await??;
    anyhow::ensure!(latencies.failed == 0, "{} requests failed", latencies.failed);
    Ok(latencies)
}

/// Puts streams on a proxy. `cpu` is per 1,000 events, in seconds.
async fn streams(
    running: &Running,
    work: &Work,
    cpu: Option<&Row>,
    rss: Option<&Row>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let subject = running.subject;
    if subject == Subject::Buffered || !running.supports(work) {
        return Ok(());
    }
    let before = running.process.cpu()?;
    let middle = async {
        tokio::time::sleep(STREAMS_MIDDLE).await;
        running.process.rss_mb()
    };
    let aim = running.aim(work);
    let end = work.customers.stream_end();
    let (events, rss_mb) = tokio::join!(load::streams(&aim, STREAMS, end), middle);
    tokio::time::sleep(AFTERMATH).await;
    let took = running.process.cpu()? - before;
    if let Some(row) = cpu {
        figures.add(row, subject, took.as_secs_f64() * 1e3 / events? as f64);
    }
    if let Some(row) = rss {
        figures.add(row, subject, rss_mb?);
    }
    Ok(())
}
