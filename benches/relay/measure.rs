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
/// Closed loops come in this many slices, the subjects in turns: the clock of a machine that is
/// shared changes from second to second, and both must meet the same one.
const SLICES: u32 = 6;
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
        median(self.all(measure, subject).to_vec())
    }

    /// Tollgate's figure over the floor's: the median of the rounds' ratios, since figures of one
    /// round were taken side by side.
    pub(crate) fn ratio(&self, measure: Measure) -> Option<f64> {
        let of = |subject| self.all(measure, subject).iter();
        let ratios = of(Subject::Tollgate).zip(of(Subject::Floor)).map(|(it, floor)| it / floor);
        median(ratios.filter(|ratio| ratio.is_finite()).collect())
    }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let upper = *figures.get(figures.len() / 2)?;
    let lower = *figures.get((figures.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
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
    let small = Load { work: Work::Instant, connections: 64 };
    let at_64 = Measures {
        throughput: Measure::RequestsAt64,
        per_request: 1.0,
        cpu: Some(Measure::CpuPerRequest),
    };
    closed(plan, &proxies, small, at_64, figures).await?;
    let small = Load { connections: 256, ..small };
    let at_256 = Measures { throughput: Measure::RequestsAt256, cpu: None, ..at_64 };
    closed(plan, &proxies, small, at_256, figures).await?;
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
        running.process.forget_peak()?;
    }
    let large = Load { work: Work::Large, connections: LARGE_CONNECTIONS };
    let throughput = Measures {
        throughput: Measure::LargeThroughput,
        per_request: Work::Large.body().len() as f64 / 1e6,
        cpu: Some(Measure::LargeCpu),
    };
    closed(plan, &proxies, large, throughput, figures).await?;
    for running in &proxies {
        figures.add(Measure::LargeRss, running.subject, running.process.peak_rss_mb()?);
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

/// A closed loop's load.
#[derive(Clone, Copy)]
struct Load {
    work: Work,
    connections: usize,
}

/// What a closed loop tells.
#[derive(Clone, Copy)]
struct Measures {
    throughput: Measure,
    /// What one request counts in the throughput.
    per_request: f64,
    /// CPU per request, in ms.
    cpu: Option<Measure>,
}

/// Puts a load on all proxies, slice by slice in turns.
async fn closed(
    plan: &Plan,
    proxies: &[Running],
    load: Load,
    measures: Measures,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let mut sums = vec![(0_u64, Duration::ZERO, Duration::ZERO); proxies.len()];
    for running in proxies {
        load::closed(&running.aim(load.work), load.connections, WARM_UP).await?;
    }
    tokio::time::sleep(AFTERMATH).await;
    for _ in 0..SLICES {
        for (running, (requests, took, cpu)) in proxies.iter().zip(&mut sums) {
            let before = running.process.cpu()?;
            let aim = running.aim(load.work);
            let slice = load::closed(&aim, load.connections, plan.closed / SLICES).await?;
            tokio::time::sleep(AFTERMATH).await;
            *requests += slice.requests;
            *took += slice.took;
            *cpu += running.process.cpu()? - before;
        }
    }
    for (running, (requests, took, cpu)) in proxies.iter().zip(sums) {
        let requests = requests as f64;
        let per_second = requests * measures.per_request / took.as_secs_f64();
        figures.add(measures.throughput, running.subject, per_second);
        if let Some(measure) = measures.cpu {
            figures.add(measure, running.subject, cpu.as_secs_f64() * 1e3 / requests);
        }
    }
    Ok(())
}
