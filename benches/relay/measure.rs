//! One round: every load, on every subject in turn.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::rig::load::{self, Aim, Latencies};
use crate::rig::median::median;
use crate::subjects::{Bench, Running, Subject};
use crate::work::Work;

/// The measurements, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Measure {
    CpuPerRequest,
    CpuPaced,
    RequestsAt64,
    RequestsAt256,
    LateP50,
    LateP99,
    InstantP50,
    InstantP99,
    CpuPerThousandChunks,
    StreamsRss,
    CpuPerThousandMessageChunks,
    LargeThroughput,
    LargeCpu,
    LargeRss,
    ImageThroughput,
    ImageCpu,
    EditThroughput,
    EditRss,
    Start,
    IdleRss,
    LoadedRss,
}

/// Streams at one time.
pub(crate) const STREAMS: usize = 200;
/// Requests per second of the open loop.
const RATE: u32 = 200;
/// Connections that send large chats.
const LARGE_CONNECTIONS: usize = 8;
/// Connections that send edits: as many as the budget for bodies has room for while they are read.
const EDIT_CONNECTIONS: usize = 2;
/// Connections that ask for images.
const IMAGE_CONNECTIONS: usize = 16;
/// Load before a measurement, which fills pools and caches.
const WARM_UP: Duration = Duration::from_millis(300);
/// Time between a load and the reading of CPU time: settlements that are written later are part of a
/// request's cost.
const AFTERMATH: Duration = Duration::from_millis(250);
/// Rest of a proxy after its start: mimalloc keeps for a second what was freed.
const REST: Duration = Duration::from_millis(2500);
/// Closed loops come in this many slices, the subjects in turns: the clock of a machine that is
/// shared changes from second to second, and both must meet the same one.
const SLICES: u32 = 6;
/// Time into the streams at which their memory is read.
const STREAMS_MIDDLE: Duration = Duration::from_millis(1000);

/// Extent of the measurements.
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
             connections, image answers of 1 MB on {IMAGE_CONNECTIONS}, edits of 28 MiB on \
             {EDIT_CONNECTIONS}"
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
    let proxies = start(bench, order).await?;
    for running in &proxies {
        let start_ms = running.start.as_secs_f64() * 1e3;
        figures.add(Measure::Start, running.subject, start_ms);
        figures.add(Measure::IdleRss, running.subject, running.process.rss_mb()?);
    }
    // Streams first: their memory is that of a process which has done nothing else.
    for running in &proxies {
        let (cpu, rss) = (Measure::CpuPerThousandChunks, Some(Measure::StreamsRss));
        streams(running, Work::Stream, cpu, rss, figures).await?;
    }
    for running in &proxies {
        let cpu = Measure::CpuPerThousandMessageChunks;
        streams(running, Work::MessageStream, cpu, None, figures).await?;
    }
    for load in SMALL {
        closed(plan, &proxies, load, figures).await?;
    }
    let direct = load::closed(&bench.direct(Work::Instant), 64, plan.closed).await?;
    figures.add(Measure::RequestsAt64, Subject::Direct, direct.per_second());
    for running in &proxies {
        figures.add(Measure::LoadedRss, running.subject, running.process.rss_mb()?);
    }
    latencies(plan, bench, &proxies, figures).await?;
    for load in [LARGE, IMAGES] {
        closed(plan, &proxies, load, figures).await?;
    }
    stop(proxies)?;
    // Edits have processes of their own: what loads before them left in memory is not theirs.
    let proxies = start(bench, order).await?;
    closed(plan, &proxies, EDITS, figures).await?;
    stop(proxies)
}

/// Starts the proxies that are not left out, and lets each come to rest: what a start needed in memory is
/// given back.
async fn start(bench: &Bench, order: [Subject; 2]) -> anyhow::Result<Vec<Running>> {
    let mut proxies = Vec::new();
    for subject in order {
        let Some(running) = bench.start(subject).await? else { continue };
        tokio::time::sleep(REST).await;
        proxies.push(running);
    }
    Ok(proxies)
}

fn stop(proxies: Vec<Running>) -> anyhow::Result<()> {
    proxies.into_iter().try_for_each(|running| running.process.stop())
}

/// Puts the open loops on everyone, the upstream itself included.
async fn latencies(
    plan: &Plan,
    bench: &Bench,
    proxies: &[Running],
    figures: &mut Figures,
) -> anyhow::Result<()> {
    for (work, p50, p99) in [
        (Work::Late, Measure::LateP50, Measure::LateP99),
        (Work::Instant, Measure::InstantP50, Measure::InstantP99),
    ] {
        let direct = (Subject::Direct, bench.direct(work));
        let latencies = open(plan, direct.1).await?;
        figures.add(p50, direct.0, latencies.quantile_ms(0.50));
        figures.add(p99, direct.0, latencies.quantile_ms(0.99));
        for running in proxies {
            let before = running.process.cpu()?;
            let latencies = open(plan, running.aim(work)).await?;
            tokio::time::sleep(AFTERMATH).await;
            let took = running.process.cpu()? - before;
            figures.add(p50, running.subject, latencies.quantile_ms(0.50));
            figures.add(p99, running.subject, latencies.quantile_ms(0.99));
            if work == Work::Instant {
                let requests = latencies.histogram.len() as f64;
                let cpu_ms = took.as_secs_f64() * 1e3 / requests;
                figures.add(Measure::CpuPaced, running.subject, cpu_ms);
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
    work: Work,
    cpu: Measure,
    rss: Option<Measure>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let subject = running.subject;
    let before = running.process.cpu()?;
    let middle = async {
        tokio::time::sleep(STREAMS_MIDDLE).await;
        running.process.rss_mb()
    };
    let aim = running.aim(work);
    let end = work.operation().stream_end();
    let (events, rss_mb) = tokio::join!(load::streams(&aim, STREAMS, end), middle);
    tokio::time::sleep(AFTERMATH).await;
    let took = running.process.cpu()? - before;
    figures.add(cpu, subject, took.as_secs_f64() * 1e3 / events? as f64);
    if let Some(measure) = rss {
        figures.add(measure, subject, rss_mb?);
    }
    Ok(())
}

/// A closed loop's load, and what it tells.
#[derive(Clone, Copy)]
struct Load {
    work: Work,
    connections: usize,
    throughput: Measure,
    unit: Unit,
    /// CPU per request, in ms.
    cpu: Option<Measure>,
    /// The most memory since just before the load, in MB.
    peak_rss: Option<Measure>,
}

/// The unit that a throughput counts.
#[derive(Clone, Copy)]
enum Unit {
    Requests,
    Megabytes,
}

const SMALL: [Load; 2] = [
    Load {
        work: Work::Instant,
        connections: 64,
        throughput: Measure::RequestsAt64,
        unit: Unit::Requests,
        cpu: Some(Measure::CpuPerRequest),
        peak_rss: None,
    },
    Load {
        work: Work::Instant,
        connections: 256,
        throughput: Measure::RequestsAt256,
        unit: Unit::Requests,
        cpu: None,
        peak_rss: None,
    },
];

const LARGE: Load = Load {
    work: Work::Large,
    connections: LARGE_CONNECTIONS,
    throughput: Measure::LargeThroughput,
    unit: Unit::Megabytes,
    cpu: Some(Measure::LargeCpu),
    peak_rss: Some(Measure::LargeRss),
};

const IMAGES: Load = Load {
    work: Work::Image,
    connections: IMAGE_CONNECTIONS,
    throughput: Measure::ImageThroughput,
    unit: Unit::Megabytes,
    cpu: Some(Measure::ImageCpu),
    peak_rss: None,
};

const EDITS: Load = Load {
    work: Work::Edit,
    connections: EDIT_CONNECTIONS,
    throughput: Measure::EditThroughput,
    unit: Unit::Megabytes,
    cpu: None,
    peak_rss: Some(Measure::EditRss),
};

/// Puts a load on all proxies, slice by slice in turns.
async fn closed(
    plan: &Plan,
    proxies: &[Running],
    load: Load,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let aims: Vec<Aim> = proxies.iter().map(|running| running.aim(load.work)).collect();
    let mut sums = vec![(0_u64, Duration::ZERO, Duration::ZERO); proxies.len()];
    for (running, aim) in proxies.iter().zip(&aims) {
        running.process.forget_peak()?;
        load::closed(aim, load.connections, WARM_UP).await?;
    }
    tokio::time::sleep(AFTERMATH).await;
    for _ in 0..SLICES {
        for ((running, aim), (requests, took, cpu)) in proxies.iter().zip(&aims).zip(&mut sums) {
            let before = running.process.cpu()?;
            let slice = load::closed(aim, load.connections, plan.closed / SLICES).await?;
            tokio::time::sleep(AFTERMATH).await;
            *requests += slice.requests;
            *took += slice.took;
            *cpu += running.process.cpu()? - before;
        }
    }
    let per_request = match load.unit {
        Unit::Requests => 1.0,
        Unit::Megabytes => load.work.payload_mb(),
    };
    for (running, (requests, took, cpu)) in proxies.iter().zip(sums) {
        let requests = requests as f64;
        let per_second = requests * per_request / took.as_secs_f64();
        figures.add(load.throughput, running.subject, per_second);
        if let Some(measure) = load.cpu {
            figures.add(measure, running.subject, cpu.as_secs_f64() * 1e3 / requests);
        }
        if let Some(measure) = load.peak_rss {
            figures.add(measure, running.subject, running.process.peak_rss_mb()?);
        }
    }
    Ok(())
}
