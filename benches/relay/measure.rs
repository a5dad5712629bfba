//! One round: every load, on every subject in turn.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::load::{self, Aim};
use crate::subjects::{Bench, Running, Subject};
use crate::work::Work;

/// What is measured. The order is that of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Measure {
    CpuPerRequest,
    RequestsAt64,
    RequestsAt256,
    LateP50,
    LateP99,
    InstantP50,
    InstantP99,
    CpuPerThousandChunks,
    StreamsRss,
    LargeThroughput,
    LargeCpu,
    LargeRss,
    Start,
    IdleRss,
}

/// Streams at one time.
pub(crate) const STREAMS: usize = 200;
/// Requests per second of the open loop.
const RATE: u32 = 200;
/// Connections that send large bodies.
const LARGE_CONNECTIONS: usize = 8;
/// Load before a measurement, which fills pools and caches.
const WARM_UP: Duration = Duration::from_millis(300);
/// How long after a load its accounting may go on before the CPU time is read: settlements that
/// are written later are part of a request's cost.
const AFTERMATH: Duration = Duration::from_millis(250);
/// How far into the streams their memory is looked at.
const STREAMS_MIDDLE: Duration = Duration::from_millis(1000);

/// How much is measured.
pub(crate) struct Plan {
    pub(crate) rounds: u32,
    closed: Duration,
    open: Duration,
}

impl Plan {
    pub(crate) fn new(quick: bool, rounds: u32) -> Self {
        if quick {
            let second = Duration::from_secs(1);
            return Self { rounds: rounds.min(3), closed: second, open: second };
        }
        Self { rounds, closed: Duration::from_secs(3), open: Duration::from_secs(4) }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, closed, open } = self;
        write!(
            f,
            "medians over {rounds} rounds, the subjects in turns; closed loops of {closed:?}, open \
             loops of {open:?} at {RATE}/s, {STREAMS} streams, 4 MiB bodies on {LARGE_CONNECTIONS} \
             connections"
        )
    }
}

/// The figures of all rounds.
#[derive(Default)]
pub(crate) struct Figures(BTreeMap<(Measure, Subject), Vec<f64>>);

impl Figures {
    fn add(&mut self, measure: Measure, subject: Subject, figure: f64) {
        self.0.entry((measure, subject)).or_default().push(figure);
    }

    /// All rounds' figures, in the order of the rounds.
    pub(crate) fn all(&self, measure: Measure, subject: Subject) -> &[f64] {
        self.0.get(&(measure, subject)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn median(&self, measure: Measure, subject: Subject) -> Option<f64> {
        let mut sorted = self.all(measure, subject).to_vec();
        sorted.sort_by(f64::total_cmp);
        let upper = *sorted.get(sorted.len() / 2)?;
        let lower = *sorted.get((sorted.len() - 1) / 2)?;
        Some(f64::midpoint(lower, upper))
    }
}

/// Starts the proxies, puts every load on each, and stops them.
pub(crate) async fn round(
    plan: &Plan,
    bench: &mut Bench,
    round: u32,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    // Who comes first changes from round to round.
    let order = match round % 2 {
        0 => [Subject::Tollgate, Subject::Floor],
        _ => [Subject::Floor, Subject::Tollgate],
    };
    let mut proxies = Vec::new();
    for subject in order {
        let Some(running) = bench.start(subject).await? else { continue };
        figures.add(Measure::Start, subject, running.start.as_secs_f64() * 1e3);
        tokio::time::sleep(AFTERMATH).await;
        figures.add(Measure::IdleRss, subject, running.process.rss_mb()?);
        proxies.push(running);
    }
    // Streams first: their memory is that of a process which has done nothing else.
    for running in &proxies {
        streams(running, figures).await?;
    }
    for running in &proxies {
        throughput(plan, running, figures).await?;
    }
    let direct = load::closed(&bench.direct(Work::Instant), 64, plan.closed).await?;
    figures.add(Measure::RequestsAt64, Subject::Direct, direct.per_second());
    for (work, p50, p99) in [
        (Work::Late, Measure::LateP50, Measure::LateP99),
        (Work::Instant, Measure::InstantP50, Measure::InstantP99),
    ] {
        let direct = (Subject::Direct, bench.direct(work));
        let aims = proxies.iter().map(|running| (running.subject, running.aim(work)));
        for (subject, aim) in std::iter::once(direct).chain(aims) {
            let latencies = open(plan, aim).await?;
            figures.add(p50, subject, latencies.value_at_quantile(0.50) as f64 / 1e6);
            figures.add(p99, subject, latencies.value_at_quantile(0.99) as f64 / 1e6);
        }
    }
    for running in &proxies {
        large(plan, running, figures).await?;
    }
    proxies.into_iter().try_for_each(|running| running.process.stop())
}

async fn open(plan: &Plan, aim: Aim) -> anyhow::Result<Histogram<u64>> {
    let duration = plan.open;
    tokio::task::spawn_blocking(move || load::open(&aim, RATE, duration)).await?
}

async fn streams(running: &Running, figures: &mut Figures) -> anyhow::Result<()> {
    let subject = running.subject;
    let before = running.process.cpu()?;
    let middle = async {
        tokio::time::sleep(STREAMS_MIDDLE).await;
        running.process.rss_mb()
    };
    let aim = running.aim(Work::Stream);
    let (events, rss_mb) = tokio::join!(load::streams(&aim, STREAMS), middle);
    tokio::time::sleep(AFTERMATH).await;
    let cpu = running.process.cpu()? - before;
    figures.add(Measure::CpuPerThousandChunks, subject, cpu.as_secs_f64() * 1e3 / events? as f64);
    figures.add(Measure::StreamsRss, subject, rss_mb?);
    Ok(())
}

async fn throughput(plan: &Plan, running: &Running, figures: &mut Figures) -> anyhow::Result<()> {
    let (subject, aim) = (running.subject, running.aim(Work::Instant));
    load::closed(&aim, 64, WARM_UP).await?;
    tokio::time::sleep(AFTERMATH).await;
    let before = running.process.cpu()?;
    let at_64 = load::closed(&aim, 64, plan.closed).await?;
    tokio::time::sleep(AFTERMATH).await;
    let cpu = running.process.cpu()? - before;
    let cpu_ms = cpu.as_secs_f64() * 1e3 / at_64.requests as f64;
    figures.add(Measure::CpuPerRequest, subject, cpu_ms);
    figures.add(Measure::RequestsAt64, subject, at_64.per_second());
    let at_256 = load::closed(&aim, 256, plan.closed).await?;
    figures.add(Measure::RequestsAt256, subject, at_256.per_second());
    tokio::time::sleep(AFTERMATH).await;
    Ok(())
}

async fn large(plan: &Plan, running: &Running, figures: &mut Figures) -> anyhow::Result<()> {
    let (subject, aim) = (running.subject, running.aim(Work::Large));
    load::closed(&aim, LARGE_CONNECTIONS, WARM_UP).await?;
    tokio::time::sleep(AFTERMATH).await;
    running.process.forget_peak()?;
    let before = running.process.cpu()?;
    let sent = load::closed(&aim, LARGE_CONNECTIONS, plan.closed).await?;
    tokio::time::sleep(AFTERMATH).await;
    let cpu = running.process.cpu()? - before;
    let mb = aim.request.len() as f64 / 1e6;
    figures.add(Measure::LargeThroughput, subject, sent.per_second() * mb);
    figures.add(Measure::LargeCpu, subject, cpu.as_secs_f64() * 1e3 / sent.requests as f64);
    figures.add(Measure::LargeRss, subject, running.process.peak_rss_mb()?);
    Ok(())
}
