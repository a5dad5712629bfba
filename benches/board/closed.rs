//! Closed loops: so many clients, each sending its next request when the answer to the last has come.

use std::time::Duration;

use crate::figures::Figures;
use crate::measure::{AFTERMATH, Plan};
use crate::rig::load::{self, Aim};
use crate::rows::{self, Row};
use crate::subjects::{Bench, Running, Subject};
use crate::work::{self, Work};

/// Load before a measurement, which fills pools and caches.
const WARM_UP: Duration = Duration::from_millis(300);
/// Closed loops come in this many slices, the subjects in turns: the clock of a machine that is
/// shared changes from second to second, and all must meet the same one.
const SLICES: u32 = 4;

/// A closed loop's load, and what it tells.
pub(crate) struct Load {
    work: &'static Work,
    connections: usize,
    throughput: Option<(&'static Row, Unit)>,
    /// CPU per request, in ms.
    cpu: Option<&'static Row>,
    /// The most memory since just before the load, in MB.
    peak_rss: Option<&'static Row>,
    /// True if the body is large enough for the buffered floor to differ from the floor.
    is_buffered: bool,
}

/// The unit that a throughput counts.
#[derive(Clone, Copy)]
enum Unit {
    Requests,
    Megabytes,
}

impl Load {
    const fn new(work: &'static Work, connections: usize) -> Self {
        let (throughput, cpu, peak_rss, is_buffered) = (None, None, None, false);
        Self { work, connections, throughput, cpu, peak_rss, is_buffered }
    }

    const fn rate(self, row: &'static Row) -> Self {
        Self { throughput: Some((row, Unit::Requests)), ..self }
    }

    const fn megabytes(self, row: &'static Row) -> Self {
        Self { throughput: Some((row, Unit::Megabytes)), ..self }
    }

    const fn cpu(self, row: &'static Row) -> Self {
        Self { cpu: Some(row), ..self }
    }

    const fn peak(self, row: &'static Row) -> Self {
        Self { peak_rss: Some(row), ..self }
    }

    const fn buffered(self) -> Self {
        Self { is_buffered: true, ..self }
    }
}

pub(crate) static SMALL: [Load; 5] = [
    Load::new(&work::INSTANT, 1).rate(&rows::RATE_1),
    Load::new(&work::INSTANT, 4).rate(&rows::RATE_4),
    Load::new(&work::INSTANT, 16).rate(&rows::RATE_16),
    Load::new(&work::INSTANT, 64).rate(&rows::RATE_64).cpu(&rows::CPU_64),
    Load::new(&work::INSTANT, 256).rate(&rows::RATE_256),
];

pub(crate) static AGENTS: [Load; 8] = [
    Load::new(&work::KIB_128, 16).rate(&rows::KIB_128_RATE).cpu(&rows::KIB_128_CPU).buffered(),
    Load::new(&work::MIB_1, 8).rate(&rows::MIB_1_RATE).cpu(&rows::MIB_1_CPU).buffered(),
    Load::new(&work::AGENT_CHAT, 16)
        .rate(&rows::AGENT_CHAT_RATE)
        .cpu(&rows::AGENT_CHAT_CPU)
        .buffered(),
    Load::new(&work::AGENT_MESSAGES, 16).cpu(&rows::AGENT_MESSAGES_CPU).buffered(),
    Load::new(&work::AGENT_RESPONSES, 16).cpu(&rows::AGENT_RESPONSES_CPU).buffered(),
    Load::new(&work::SCREENSHOT_CHAT, 8)
        .rate(&rows::SCREENSHOT_CHAT_RATE)
        .cpu(&rows::SCREENSHOT_CHAT_CPU)
        .buffered(),
    Load::new(&work::SCREENSHOT_MESSAGES, 8).cpu(&rows::SCREENSHOT_MESSAGES_CPU).buffered(),
    Load::new(&work::SCREENSHOT_RESPONSES, 8).cpu(&rows::SCREENSHOT_RESPONSES_CPU).buffered(),
];

pub(crate) static TRANSLATED: [Load; 3] = [
    Load::new(&work::MESSAGES_OVER_CHAT, 16).cpu(&rows::MESSAGES_OVER_CHAT_CPU).buffered(),
    Load::new(&work::RESPONSES_OVER_CHAT, 16).cpu(&rows::RESPONSES_OVER_CHAT_CPU).buffered(),
    Load::new(&work::CHAT_OVER_MESSAGES, 16).cpu(&rows::CHAT_OVER_MESSAGES_CPU).buffered(),
];

pub(crate) static BODIES: [Load; 2] = [
    Load::new(&work::MIB_4, 8)
        .megabytes(&rows::MIB_4_RATE)
        .cpu(&rows::MIB_4_CPU)
        .peak(&rows::MIB_4_PEAK),
    Load::new(&work::IMAGE, 16).megabytes(&rows::IMAGE_RATE).cpu(&rows::IMAGE_CPU),
];

/// As many connections as the budget for bodies has room for while they are read.
pub(crate) static EDITS: [Load; 1] =
    [Load::new(&work::EDIT, 2).megabytes(&rows::EDIT_RATE).peak(&rows::EDIT_PEAK)];

/// Puts a load on all proxies, slice by slice in turns, and once on the upstream itself: what comes out there is
/// the most that the load generator and the upstream can do.
pub(crate) async fn put(
    plan: &Plan,
    bench: &Bench,
    proxies: &[Running],
    load: &Load,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let proxies = proxies.iter().filter(|running| {
        running.supports(load.work) && (load.is_buffered || running.subject != Subject::Buffered)
    });
    let aims: Vec<(&Running, Aim)> = proxies.map(|it| (it, it.aim(load.work))).collect();
    let mut sums = vec![(0_u64, Duration::ZERO, Duration::ZERO); aims.len()];
    for (running, aim) in &aims {
        running.process.forget_peak()?;
        load::closed(aim, load.connections, WARM_UP).await?;
    }
    tokio::time::sleep(AFTERMATH).await;
    for _ in 0..SLICES {
        for ((running, aim), (requests, took, cpu)) in aims.iter().zip(&mut sums) {
            let before = running.process.cpu()?;
            let slice = load::closed(aim, load.connections, plan.closed / SLICES).await?;
            tokio::time::sleep(AFTERMATH).await;
            *requests += slice.requests;
            *took += slice.took;
            *cpu += running.process.cpu()? - before;
        }
    }
    for ((running, _), (requests, took, cpu)) in aims.iter().zip(sums) {
        let requests = requests as f64;
        if let Some((row, unit)) = load.throughput {
            let per_second = requests * unit.per_request(load.work) / took.as_secs_f64();
            figures.add(row, running.subject, per_second);
        }
        if let Some(row) = load.cpu {
            figures.add(row, running.subject, cpu.as_secs_f64() * 1e3 / requests);
        }
        if let Some(row) = load.peak_rss {
            figures.add(row, running.subject, running.process.peak_rss_mb()?);
        }
    }
    if let Some((row, unit)) = load.throughput {
        let aim = bench.direct(load.work);
        let direct = load::closed(&aim, load.connections, plan.closed / SLICES).await?;
        figures.add(row, Subject::Direct, direct.per_second() * unit.per_request(load.work));
    }
    Ok(())
}

impl Unit {
    fn per_request(self, work: &Work) -> f64 {
        match self {
            Self::Requests => 1.0,
            Self::Megabytes => work.payload_mb(),
        }
    }
}
