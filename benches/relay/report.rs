//! The table, and the same for machines.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::config::BODY_MEMORY_MIB;
use crate::measure::{Figures, Measure, Plan};
use crate::rig::machine::Machine;
use crate::subjects::Subject;

/// The reference of tollgate's figure.
#[derive(Clone, Copy)]
enum Bar {
    None,
    /// At most this many times the floor's.
    RatioMax(f64),
    /// At least this many times the floor's.
    RatioMin(f64),
    /// At most this.
    Max(f64),
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::RatioMax(ratio) => write!(f, "≤ {ratio} × floor"),
            Self::RatioMin(ratio) => write!(f, "≥ {ratio} × floor"),
            Self::Max(max) => write!(f, "≤ {max}"),
        }
    }
}

/// A line of the table.
struct Row {
    name: &'static str,
    measure: Measure,
    decimals: usize,
    /// True if the cost of the direct way is subtracted.
    added: bool,
    bar: Bar,
}

impl Row {
    const fn new(name: &'static str, measure: Measure, decimals: usize, bar: Bar) -> Self {
        Self { name, measure, decimals, added: false, bar }
    }

    const fn added(name: &'static str, measure: Measure, bar: Bar) -> Self {
        Self { name, measure, decimals: 3, added: true, bar }
    }

    fn figure(&self, figures: &Figures, subject: Subject) -> Option<f64> {
        let figure = figures.median(self.measure, subject)?;
        match (self.added, subject) {
            (false, _) => Some(figure),
            (true, Subject::Direct) => None,
            (true, _) => Some(figure - figures.median(self.measure, Subject::Direct)?),
        }
    }

    fn ratio(&self, figures: &Figures) -> Option<f64> {
        if !self.added {
            return figures.ratio(self.measure);
        }
        let floor = self.figure(figures, Subject::Floor).filter(|floor| *floor > 0.0)?;
        Some(self.figure(figures, Subject::Tollgate)? / floor)
    }

    /// True if the bar is reached; `None` where there is nothing to compare.
    fn verdict(&self, figures: &Figures) -> Option<&'static str> {
        let tollgate = self.figure(figures, Subject::Tollgate)?;
        if self.added && tollgate < 0.0 && !matches!(self.bar, Bar::None) {
            // A proxy cannot be faster than no proxy: something else had the processor.
            return Some("NOT MEASURABLE: the direct way was slower");
        }
        let is_reached = match self.bar {
            Bar::None => return None,
            Bar::RatioMax(max) => self.ratio(figures)? <= max,
            Bar::RatioMin(min) => self.ratio(figures)? >= min,
            Bar::Max(max) => tollgate <= max,
        };
        Some(if is_reached { "reached" } else { "MISSED" })
    }
}

/// The peak that is allowed under large bodies: the budget for bodies, in whole MB.
const BODIES_RSS_MB_MAX: f64 = (BODY_MEMORY_MIB * 1024 * 1024 / 1_000_000) as f64;

const ROWS: [Row; 25] = [
    Row::new("CPU per request, 64 connections, ms", Measure::CpuPerRequest, 4, Bar::RatioMax(1.2)),
    Row::new("CPU per request at 200/s, ms", Measure::CpuPaced, 3, Bar::Max(0.40)),
    Row::new("requests/s, 64 connections", Measure::RequestsAt64, 0, Bar::None),
    Row::new("requests/s, 256 connections", Measure::RequestsAt256, 0, Bar::None),
    Row::new("p50 at 200/s, upstream 20 ms, ms", Measure::LateP50, 3, Bar::None),
    Row::added("  added to direct", Measure::LateP50, Bar::Max(0.10)),
    Row::new("p99 at 200/s, upstream 20 ms, ms", Measure::LateP99, 3, Bar::None),
    Row::added("  added to direct", Measure::LateP99, Bar::Max(1.0)),
    Row::new("p50 at 200/s, instant upstream, ms", Measure::InstantP50, 3, Bar::Max(0.55)),
    Row::added("  added to direct", Measure::InstantP50, Bar::None),
    Row::new("p99 at 200/s, instant upstream, ms", Measure::InstantP99, 3, Bar::None),
    Row::added("  added to direct", Measure::InstantP99, Bar::None),
    Row::new("CPU per 1,000 SSE chunks, s", Measure::CpuPerThousandChunks, 4, Bar::RatioMax(1.0)),
    Row::new("RSS at 200 streams, MB", Measure::StreamsRss, 1, Bar::Max(48.0)),
    Row::new(
        "CPU per 1,000 SSE chunks of messages, s",
        Measure::CpuPerThousandMessageChunks,
        4,
        Bar::RatioMax(1.0),
    ),
    Row::new("RSS after the loads above, MB", Measure::LoadedRss, 1, Bar::Max(48.0)),
    Row::new("4 MiB bodies, MB/s", Measure::LargeThroughput, 0, Bar::RatioMin(0.8)),
    Row::new("CPU per 4 MiB request, ms", Measure::LargeCpu, 2, Bar::None),
    Row::new("peak RSS under 4 MiB bodies, MB", Measure::LargeRss, 1, Bar::Max(80.0)),
    Row::new("1 MB image answers, MB/s", Measure::ImageThroughput, 0, Bar::RatioMin(0.65)),
    Row::new("CPU per 1 MB image answer, ms", Measure::ImageCpu, 2, Bar::None),
    Row::new("28 MB edits, MB/s", Measure::EditThroughput, 0, Bar::RatioMin(0.65)),
    Row::new("peak RSS under 28 MB edits, MB", Measure::EditRss, 1, Bar::Max(BODIES_RSS_MB_MAX)),
    Row::new("start to first 200, ms", Measure::Start, 1, Bar::Max(60.0)),
    Row::new("idle RSS, MB", Measure::IdleRss, 1, Bar::Max(20.0)),
];

/// The medians beside each other, with the median of the rounds' ratios and the bar.
pub(crate) fn table(figures: &Figures) -> String {
    let mut table = format!(
        "{:<39} {:>10} {:>10} {:>10} {:>7}  {}\n",
        "", "direct", "floor", "tollgate", "ratio", "bar"
    );
    for row in &ROWS {
        let cell = |subject| {
            let figure = row.figure(figures, subject);
            figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.*}", row.decimals))
        };
        let ratio = row.ratio(figures);
        let ratio = ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        let verdict = row.verdict(figures).unwrap_or_default();
        let [direct, floor, tollgate] = Subject::ALL.map(cell);
        let line = format!(
            "{:<39} {direct:>10} {floor:>10} {tollgate:>10} {ratio:>7}  {:<14} {verdict}",
            row.name,
            row.bar.to_string()
        );
        table += line.trim_end();
        table.push('\n');
    }
    table
}

/// Every figure of every round.
pub(crate) fn json(figures: &Figures, machine: &Machine, plan: &Plan) -> Value {
    let rows = ROWS.iter().filter(|row| !row.added).map(|row| {
        let of = |subject: Subject| {
            let figures = json!({
                "median": figures.median(row.measure, subject),
                "rounds": figures.all(row.measure, subject),
            });
            (subject.name().to_owned(), figures)
        };
        (row.name.to_owned(), Value::Object(Subject::ALL.map(of).into_iter().collect()))
    });
    json!({
        "command": machine.command,
        "cores": machine.cores,
        "cpu": machine.cpu,
        "kernel": machine.kernel,
        "load_before": machine.load,
        "plan": plan.to_string(),
        "figures": rows.collect::<Map<_, _>>(),
    })
}
