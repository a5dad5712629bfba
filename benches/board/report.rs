//! The table, and the same for machines.

use serde_json::{Map, Value, json};

use crate::figures::Figures;
use crate::measure::Plan;
use crate::rig::machine::Machine;
use crate::rows::{self, Bar, Row};
use crate::subjects::Subject;

/// The columns: each subject with its name.
pub(crate) type Columns = [(Subject, String)];

/// A line of the table: a row, or what is left of it without the direct way.
struct Line<'a> {
    row: &'a Row,
    bar: Bar,
    is_added: bool,
}

impl Line<'_> {
    fn figure(&self, figures: &Figures, subject: Subject) -> Option<f64> {
        let figure = figures.median(self.row, subject)?;
        match (self.is_added, subject) {
            (false, _) => Some(figure),
            (true, Subject::Direct) => None,
            (true, _) => Some(figure - figures.median(self.row, Subject::Direct)?),
        }
    }

    fn ratio(&self, figures: &Figures, base: Subject) -> Option<f64> {
        if !self.is_added {
            return figures.ratio(self.row, base);
        }
        let base = self.figure(figures, base).filter(|base| *base > 0.0)?;
        Some(self.figure(figures, Subject::Tollgate)? / base)
    }

    /// True if the bar is reached; `None` where there is nothing to compare.
    fn verdict(&self, figures: &Figures) -> Option<String> {
        let tollgate = self.figure(figures, Subject::Tollgate)?;
        if self.is_added && tollgate < 0.0 && !matches!(self.bar, Bar::None) {
            // A proxy cannot be faster than no proxy: something else had the processor.
            return Some("NOT MEASURABLE: the direct way was slower".to_owned());
        }
        let ratio = |base| self.ratio(figures, base);
        let floor = || self.figure(figures, Subject::Floor);
        let (is_reached, shown) = match self.bar {
            Bar::None => return None,
            Bar::FloorMax(max) => (ratio(Subject::Floor)? <= max, None),
            Bar::FloorMin(min) => (ratio(Subject::Floor)? >= min, None),
            Bar::BufferedMax(max) => {
                let ratio = ratio(Subject::Buffered)?;
                (ratio <= max, Some(ratio))
            }
            Bar::PeerMin(min) => {
                let ratio = ratio(Subject::Peer(0))?;
                (ratio >= min, Some(ratio))
            }
            Bar::FloorAnd(more) => (tollgate <= floor()? + more, None),
            Bar::FlushAnd(more) => {
                let flush = figures.median(&rows::FLUSH, Subject::Direct)?;
                (tollgate <= floor()? + flush + more, None)
            }
            Bar::Max(max) => (tollgate <= max, None),
        };
        let shown = shown.map(|ratio| format!(" ({ratio:.2})")).unwrap_or_default();
        Some(format!("{}{shown}", if is_reached { "reached" } else { "MISSED" }))
    }
}

/// The medians beside each other, with the median of the rounds' ratios to the floor, and the bar. Rows that were
/// not measured are left out.
pub(crate) fn table(figures: &Figures, columns: &Columns) -> String {
    let mut table = format!("{:<46}", "");
    for (_, name) in columns {
        table += &format!(" {name:>9}");
    }
    table += "  to floor  bar\n";
    for row in rows::ALL {
        if columns.iter().all(|(subject, _)| figures.all(row, *subject).is_empty()) {
            continue;
        }
        let line = Line { row, bar: row.bar, is_added: false };
        table += &text(&line, row.name, figures, columns);
        if let Some(bar) = row.added {
            let line = Line { row, bar, is_added: true };
            table += &text(&line, "  added to direct", figures, columns);
        }
    }
    table
}

fn text(line: &Line<'_>, name: &str, figures: &Figures, columns: &Columns) -> String {
    let mut text = format!("{name:<46}");
    for (subject, _) in columns {
        let figure = line.figure(figures, *subject);
        let figure =
            figure.map_or_else(|| "–".to_owned(), |it| format!("{it:.*}", line.row.decimals));
        text += &format!(" {figure:>9}");
    }
    let ratio = line.ratio(figures, Subject::Floor);
    let ratio = ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
    let verdict = line.verdict(figures);
    // A bar without anything to compare with would read as one that was held.
    let bar = if verdict.is_some() { line.bar.to_string() } else { String::new() };
    text += &format!("  {ratio:>8}  {bar:<22} {}", verdict.unwrap_or_default());
    format!("{}\n", text.trim_end())
}

/// Every figure of every round.
pub(crate) fn json(figures: &Figures, columns: &Columns, machine: &Machine, plan: &Plan) -> Value {
    let rows = rows::ALL.iter().map(|row| {
        let of = |(subject, name): &(Subject, String)| {
            let figures = json!({
                "median": figures.median(row, *subject),
                "rounds": figures.all(row, *subject),
            });
            (name.clone(), figures)
        };
        (row.name.to_owned(), Value::Object(columns.iter().map(of).collect()))
    });
    json!({
        "command": machine.command,
        "cores": machine.cores,
        "cpu": machine.cpu,
        "kernel": machine.kernel,
        "date": machine.date,
        "load_before": machine.load,
        "plan": plan.to_string(),
        "figures": rows.collect::<Map<_, _>>(),
    })
}
