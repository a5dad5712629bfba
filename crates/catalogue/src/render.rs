//! A report for people, and for programs.

use serde_json::{Map, Value, json};
use tollgate_money::money::Rate;
use tollgate_money::price::{Condition, Unit};
use tollgate_types::printable::one_line;

use crate::condition::{as_flow, fields};
use crate::report::{Difference, PriceReport};

/// The most characters of a name of others, and of a line with figures of several lists.
const ABOUT_CHARS_MAX: usize = 200;
const LINE_CHARS_MAX: usize = 1_000;

/// A line of a group: its subject and its text.
type ReportLine = (String, String);

/// The report as text: all non-empty groups, followed by the changes as entries of `models.yaml`.
#[must_use]
pub fn as_text(report: &PriceReport) -> String {
    let mut text = String::new();
    for list in &report.sources {
        text.push_str(&format!("{}: {} models in {}\n", list.label, list.models, list.name));
    }
    for (title, lines) in groups(report) {
        // Names and figures are those of other people's lists.
        let lines: Vec<(String, String)> = lines
            .iter()
            .map(|(about, line)| {
                let (about, line) =
                    (one_line(about, ABOUT_CHARS_MAX), one_line(line, LINE_CHARS_MAX));
                (about.into_owned(), line.into_owned())
            })
            .collect();
        let width = lines.iter().map(|(about, _)| about.chars().count()).max().unwrap_or_default();
        if !lines.is_empty() {
            text.push_str(&format!("\n{title}\n"));
        }
        for (about, line) in lines {
            text.push_str(format!("  {about:width$}  {line}").trim_end());
            text.push('\n');
        }
    }
    if !report.proposed.is_empty() {
        text.push_str("\n# Proposed for models.yaml. Nothing was changed.\nmodels:\n");
    }
    for proposal in &report.proposed {
        text.push_str(&proposal.yaml);
        text.push('\n');
    }
    text.push_str(if report.is_different() {
        "\nmodels.yaml differs from the lists\n"
    } else {
        "\nmodels.yaml says what the lists say\n"
    });
    text
}

/// The groups in the order in which they are shown.
fn groups(report: &PriceReport) -> Vec<(&'static str, Vec<ReportLine>)> {
    let differing = |differences: &[Difference]| differences.iter().map(difference).collect();
    let missing = report.missing.iter().map(|missing| {
        let sources = missing.sources.join(", ");
        let dollars = dollars(missing.unit, missing.theirs);
        (about(&missing.model, missing.unit, &missing.when), format!("{dollars}  {sources}"))
    });
    let limits = report.limits.iter().map(|limit| {
        let each = limit.figures.iter().map(|(source, theirs)| format!("{source} {theirs}"));
        let each = each.collect::<Vec<_>>().join(", ");
        (format!("{}  {}", limit.model, limit.field), format!("{} → {each}", limit.ours))
    });
    let disagree = report.disagree.iter().map(|one| {
        let each = one.figures.iter();
        let each =
            each.map(|figure| format!("{} {}", figure.source, dollars(one.unit, figure.rate)));
        let each = each.collect::<Vec<_>>().join(", ");
        let ours = dollars(one.unit, one.ours);
        (about(&one.model, one.unit, &one.when), format!("ours {ours}: {each}"))
    });
    let unknown = report.unknown.iter().map(|one| {
        let what = format!("{}  {} {}", one.model, one.key, one.figure);
        (what.trim_end().to_owned(), format!("{}: {}", one.source, one.why))
    });
    let malformed = report.malformed.iter().map(|one| {
        let what = format!("{}  {}", one.model, one.entry);
        (what, format!("{}: {}", one.source, one.why))
    });
    let not_found = report.not_found.iter().map(|model| (model.clone(), String::new()));
    vec![
        ("cheaper", differing(&report.cheaper)),
        ("dearer", differing(&report.dearer)),
        ("missing", missing.collect()),
        ("limits", limits.collect()),
        ("disagree", disagree.collect()),
        ("unknown", unknown.collect()),
        ("malformed", malformed.collect()),
        ("not found", not_found.collect()),
    ]
}

fn difference(difference: &Difference) -> ReportLine {
    let Difference { model, unit, when, ours, theirs, sources } = difference;
    let (ours, theirs) = (dollars(*unit, *ours), dollars(*unit, *theirs));
    (about(model, *unit, when), format!("{ours} → {theirs}  {}", sources.join(", ")))
}

fn about(model: &str, unit: Unit, when: &Condition) -> String {
    let price = unit.info().price;
    if *when == Condition::default() {
        format!("{model}  {price}")
    } else {
        format!("{model}  {price} {}", as_flow(when))
    }
}

fn dollars(unit: Unit, rate: Rate) -> String {
    rate.dollars(unit.info().per)
}

/// The report as one JSON document. Prices are strings, in US dollars for what their fields in
/// `models.yaml` are for.
#[must_use]
pub fn as_json(report: &PriceReport) -> Value {
    let sources = report.sources.iter().map(|list| {
        let (label, name, format) = (&list.label, &list.name, list.format.as_str());
        json!({ "source": label, "from": name, "format": format, "models": list.models })
    });
    let differing = |differences: &[Difference]| -> Vec<Value> {
        let each = differences.iter().map(|one| {
            let (ours, theirs) = (dollars(one.unit, one.ours), dollars(one.unit, one.theirs));
            let mut line = place(&one.model, one.unit, &one.when);
            line.extend([
                ("ours".to_owned(), json!(ours)),
                ("theirs".to_owned(), json!(theirs)),
                ("sources".to_owned(), json!(one.sources)),
            ]);
            Value::Object(line)
        });
        each.collect()
    };
    let limits = report.limits.iter().map(|one| {
        let each = one.figures.iter();
        let each: Vec<_> =
            each.map(|(source, tokens)| json!({ "source": source, "tokens": tokens })).collect();
        json!({ "model": one.model, "field": one.field, "ours": one.ours, "theirs": each })
    });
    let disagree = report.disagree.iter().map(|one| {
        let mut line = place(&one.model, one.unit, &one.when);
        let each = one.figures.iter().map(
            |figure| json!({ "source": figure.source, "price": dollars(one.unit, figure.rate) }),
        );
        line.extend([
            ("ours".to_owned(), json!(dollars(one.unit, one.ours))),
            ("theirs".to_owned(), each.collect()),
        ]);
        Value::Object(line)
    });
    let unknown = report.unknown.iter().map(|one| {
        let (model, source, key) = (&one.model, &one.source, &one.key);
        let (figure, why) = (&one.figure, &one.why);
        json!({ "model": model, "source": source, "key": key, "figure": figure, "why": why })
    });
    let malformed = report.malformed.iter().map(|one| {
        let (model, source) = (&one.model, &one.source);
        json!({ "model": model, "source": source, "entry": one.entry, "why": one.why })
    });
    let proposed = report.proposed.iter();
    let proposed = proposed.map(|one| json!({ "model": one.model, "yaml": one.yaml }));
    json!({
        "different": report.is_different(),
        "sources": sources.collect::<Vec<_>>(),
        "cheaper": differing(&report.cheaper),
        "dearer": differing(&report.dearer),
        "missing": differing(&report.missing),
        "limits": limits.collect::<Vec<_>>(),
        "disagree": disagree.collect::<Vec<_>>(),
        "unknown": unknown.collect::<Vec<_>>(),
        "malformed": malformed.collect::<Vec<_>>(),
        "not_found": report.not_found,
        "proposed": proposed.collect::<Vec<_>>(),
    })
}

/// Identification of a line: the model, the price's field, and the condition's fields as text.
fn place(model: &str, unit: Unit, when: &Condition) -> Map<String, Value> {
    let when = fields(when).into_iter().map(|(name, value)| (name.to_owned(), json!(value)));
    Map::from_iter([
        ("model".to_owned(), json!(model)),
        ("price".to_owned(), json!(unit.info().price)),
        ("when".to_owned(), Value::Object(when.collect())),
    ])
}
