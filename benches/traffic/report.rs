//! The figures, the table, and the same for machines.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::Plan;
use crate::rig::machine::Machine;
use crate::rig::median::median;

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Measure {
    PlainThroughput,
    TlsThroughput,
    PlainCpu,
    TlsCpu,
    ModelsCpu,
    KeysCpu,
    LimitedCpu,
    FloorStreamRss,
    StreamRss,
    StreamsBroken,
    QuietP50,
    ReloadP50,
    QuietP99,
    ReloadP99,
    QuietFailed,
    ReloadFailed,
    ReloadCpu,
}

/// The figures of all rounds.
#[derive(Default)]
pub(crate) struct Figures(BTreeMap<Measure, Vec<f64>>);

impl Figures {
    pub(crate) fn add(&mut self, measure: Measure, figure: f64) {
        self.0.entry(measure).or_default().push(figure);
    }

    /// All rounds' figures, in the order of the rounds.
    fn all(&self, measure: Measure) -> &[f64] {
        self.0.get(&measure).map_or(&[], Vec::as_slice)
    }

    /// The median over the rounds of what `compare` makes of two figures of one round: they were
    /// taken side by side.
    fn compared(
        &self,
        measure: Measure,
        base: Measure,
        compare: impl Fn(f64, f64) -> f64,
    ) -> Option<f64> {
        let pairs = self.all(measure).iter().zip(self.all(base));
        let compared = pairs.map(|(figure, base)| compare(*figure, *base));
        median(compared.filter(|compared| compared.is_finite()).collect())
    }
}

/// The bar of a figure.
#[derive(Clone, Copy)]
enum Bar {
    None,
    /// At most this.
    Max(f64),
    /// At most this in each round.
    MaxEver(f64),
    /// At most this many times the base.
    RatioMax(f64),
    /// At most this above the base.
    AddedMax(f64),
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Max(max) | Self::MaxEver(max) => write!(f, "≤ {max}"),
            Self::RatioMax(ratio) => write!(f, "≤ {ratio} × base"),
            Self::AddedMax(added) => write!(f, "≤ base + {added}"),
        }
    }
}

/// A line of the table.
struct Row {
    name: &'static str,
    measure: Measure,
    /// The reference of a comparison.
    base: Option<Measure>,
    decimals: usize,
    bar: Bar,
}

impl Row {
    const fn alone(name: &'static str, measure: Measure, decimals: usize, bar: Bar) -> Self {
        Self { name, measure, base: None, decimals, bar }
    }

    const fn beside(
        name: &'static str,
        base: Measure,
        measure: Measure,
        decimals: usize,
        bar: Bar,
    ) -> Self {
        Self { name, measure, base: Some(base), decimals, bar }
    }

    fn compared(&self, figures: &Figures, compare: impl Fn(f64, f64) -> f64) -> Option<f64> {
        figures.compared(self.measure, self.base?, compare)
    }

    fn ratio(&self, figures: &Figures) -> Option<f64> {
        self.compared(figures, |figure, base| figure / base)
    }

    fn added(&self, figures: &Figures) -> Option<f64> {
        self.compared(figures, |figure, base| figure - base)
    }

    fn verdict(&self, figures: &Figures) -> Option<&'static str> {
        let all = figures.all(self.measure).to_vec();
        let (figure, max) = match self.bar {
            Bar::None => return None,
            Bar::Max(max) => (median(all)?, max),
            Bar::MaxEver(max) => (all.into_iter().reduce(f64::max)?, max),
            Bar::RatioMax(max) => (self.ratio(figures)?, max),
            Bar::AddedMax(max) => (self.added(figures)?, max),
        };
        Some(if figure <= max { "reached" } else { "MISSED" })
    }
}

/// The allowance for many models, many keys and limits: the noise of a machine that is shared.
const FLAT: Bar = Bar::RatioMax(1.1);

const ROWS: [Row; 12] = [
    Row::beside(
        "requests/s, TLS with h2 to plain HTTP/1.1",
        Measure::PlainThroughput,
        Measure::TlsThroughput,
        0,
        Bar::None,
    ),
    Row::beside("CPU per request, the same, ms", Measure::PlainCpu, Measure::TlsCpu, 4, Bar::None),
    Row::beside(
        "CPU per request, 1,000 models to 10, ms",
        Measure::PlainCpu,
        Measure::ModelsCpu,
        4,
        FLAT,
    ),
    Row::beside(
        "CPU per request, 10,000 keys to 10, ms",
        Measure::PlainCpu,
        Measure::KeysCpu,
        4,
        FLAT,
    ),
    Row::beside(
        "CPU per request, limits to none, ms",
        Measure::PlainCpu,
        Measure::LimitedCpu,
        4,
        FLAT,
    ),
    Row::beside(
        "RSS per open stream, to Pingora alone, KiB",
        Measure::FloorStreamRss,
        Measure::StreamRss,
        1,
        Bar::Max(40.0),
    ),
    Row::alone("  streams that did not end whole", Measure::StreamsBroken, 0, Bar::MaxEver(0.0)),
    Row::beside(
        "p50, a reload each second to none, ms",
        Measure::QuietP50,
        Measure::ReloadP50,
        3,
        Bar::None,
    ),
    Row::beside("p99, the same, ms", Measure::QuietP99, Measure::ReloadP99, 3, Bar::AddedMax(1.0)),
    Row::alone("  requests that failed", Measure::ReloadFailed, 0, Bar::MaxEver(0.0)),
    Row::alone(
        "  requests that failed without reloads",
        Measure::QuietFailed,
        0,
        Bar::MaxEver(0.0),
    ),
    Row::alone("  CPU per reload of 1,000 models, ms", Measure::ReloadCpu, 1, Bar::None),
];

/// The medians, those that are compared beside each other, with the median of the rounds' ratios,
/// or of what was added where the bar is about that.
pub(crate) fn table(figures: &Figures) -> String {
    let mut table =
        format!("{:<42} {:>10} {:>10} {:>7}  {}\n", "", "base", "measured", "ratio", "bar");
    for row in ROWS.iter().filter(|row| !figures.all(row.measure).is_empty()) {
        let cell = |measure: Option<Measure>| {
            let figure = measure.and_then(|measure| median(figures.all(measure).to_vec()));
            figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.*}", row.decimals))
        };
        let compared = match row.bar {
            Bar::AddedMax(_) => row.added(figures).map(|added| format!("{added:+.2}")),
            _ => row.ratio(figures).map(|ratio| format!("{ratio:.2}")),
        };
        let compared = compared.unwrap_or_else(|| "–".to_owned());
        let (base, measured) = (cell(row.base), cell(Some(row.measure)));
        let (bar, verdict) = (row.bar.to_string(), row.verdict(figures).unwrap_or_default());
        let line = format!(
            "{:<42} {base:>10} {measured:>10} {compared:>7}  {bar:<12} {verdict}",
            row.name
        );
        table += line.trim_end();
        table.push('\n');
    }
    table
}

/// Every figure of every round.
pub(crate) fn json(figures: &Figures, machine: &Machine, plan: &Plan) -> Value {
    let of = |measure: Measure| {
        let all = figures.all(measure);
        json!({"median": median(all.to_vec()), "rounds": all})
    };
    let rows = ROWS.iter().map(|row| {
        let row_figures = json!({
            "base": row.base.map(of),
            "measured": of(row.measure),
            "ratio": row.ratio(figures),
            "added": row.added(figures),
            "bar": row.bar.to_string(),
            "verdict": row.verdict(figures),
        });
        (row.name.trim_start().to_owned(), row_figures)
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
