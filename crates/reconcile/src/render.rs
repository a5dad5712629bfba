//! A reconciliation for people, and for programs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tollgate_types::printable::{one_line, shortened};

use crate::amount::Femtousd;
use crate::report::{DifferenceClass, MoneyLine, QuantityLine, Reconciliation, StatementKey};

/// The most characters of a name of the provider's in a report: one of 30 MB was printed whole.
const NAME_CHARS_MAX: usize = 200;
/// The most characters of a note, which may repeat some names.
const NOTE_CHARS_MAX: usize = 1_000;
/// Word in the unit column for an amount.
const AMOUNT: &str = "amount";
/// The titles of the columns. The last three are figures.
const TITLES: [&str; 8] =
    ["class", "day", "model", "credential", "unit", "theirs", "ours", "difference"];
/// Number of text columns.
const WORDS: usize = 5;

/// The reconciliation as text: what differs, the differences by class, and what was not compared.
#[must_use]
pub fn as_text(report: &Reconciliation) -> String {
    let mut text = String::new();
    if report.is_different() {
        write_table(&rows(report), &mut text);
        text.push('\n');
    }
    for (class, total) in report.totals() {
        let (lines, amount) = (total.lines, total.amount);
        text.push_str(&format!("{:<9}  {lines} lines, {amount}\n", class.as_str()));
    }
    text.push_str(&format!("{} lines agree, amounts up to {}\n", report.agreeing, report.rest_max));
    for (what, skipped) in &report.skipped {
        let (lines, amount) = (skipped.lines, skipped.amount);
        let what = printable(what);
        text.push_str(&format!("not compared: {what}: {lines} lines, {amount}\n"));
    }
    for note in &report.notes {
        text.push_str(&format!("note: {}\n", one_line(note, NOTE_CHARS_MAX)));
    }
    text.push_str(if report.is_different() {
        "the statement differs from the journal\n"
    } else {
        "the statement is what the journal says\n"
    });
    text
}

/// Differing lines by day, model and credential, quantities before the amount.
fn rows(report: &Reconciliation) -> Vec<[String; TITLES.len()]> {
    let quantities = report.quantities.iter().map(|line| {
        let difference = line.theirs.saturating_sub(line.ours);
        let figures = [line.theirs, line.ours, difference].map(|figure| figure.to_string());
        (&line.key, false, line.class, line.measure.name(), figures)
    });
    let amounts = report.amounts.iter().map(|line| {
        let figures = [line.theirs, line.ours, line.theirs.minus(line.ours)];
        (&line.key, true, line.class, AMOUNT, figures.map(|figure| figure.to_string()))
    });
    let mut lines: Vec<_> = quantities.chain(amounts).collect();
    lines.sort_by_key(|(key, is_amount, ..)| (*key, *is_amount));
    let row = |(key, _, class, unit, [theirs, ours, difference]): (
        &StatementKey,
        bool,
        DifferenceClass,
        &str,
        [String; 3],
    )| {
        let day = key.day.to_string();
        let all = || "(all)".to_owned();
        let model = key.model.clone().unwrap_or_else(all);
        let credential = key.credential.clone().unwrap_or_else(all);
        let class = class.as_str().to_owned();
        [class, day, model, credential, unit.to_owned(), theirs, ours, difference]
    };
    lines.into_iter().map(row).map(|row| row.map(|cell| printable(&cell))).collect()
}

/// A name of the provider's on one line of a terminal. Figures are shorter by far.
fn printable(text: &str) -> String {
    one_line(text, NAME_CHARS_MAX).into_owned()
}

/// A name of the provider's in a document.
fn name(text: &str) -> Cow<'_, str> {
    shortened(text, NAME_CHARS_MAX)
}

/// Amounts by name. Names that are the same once they are cut stay apart by a number.
fn by_name(amounts: &BTreeMap<String, Femtousd>) -> Map<String, Value> {
    let mut found = Map::new();
    for (item, amount) in amounts {
        let cut = name(item).into_owned();
        let mut key = cut.clone();
        let mut number = 2_u32;
        while found.contains_key(&key) {
            key = format!("{cut} #{number}");
            number = number.saturating_add(1);
        }
        found.insert(key, json!(amount.to_string()));
    }
    found
}

fn write_table(rows: &[[String; TITLES.len()]], text: &mut String) {
    let mut widths = TITLES.map(|title| title.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let titles = TITLES.map(str::to_owned);
    for row in std::iter::once(&titles).chain(rows) {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column < WORDS { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
}

/// The reconciliation as one JSON document. Amounts are strings of US dollars.
#[must_use]
pub fn as_json(report: &Reconciliation) -> Value {
    let classes = report.totals().into_iter().map(|(class, total)| {
        let value = json!({ "lines": total.lines, "amount": total.amount.to_string() });
        (class.as_str().to_owned(), value)
    });
    let skipped = report.skipped.iter().map(|(what, skipped)| {
        json!({ "what": name(what), "lines": skipped.lines, "amount": skipped.amount.to_string() })
    });
    json!({
        "different": report.is_different(),
        "classes": Map::from_iter(classes),
        "quantities": report.quantities.iter().map(quantity).collect::<Vec<_>>(),
        "amounts": report.amounts.iter().map(amount).collect::<Vec<_>>(),
        "agreeing": report.agreeing,
        "rest_max": report.rest_max.to_string(),
        "not_compared": skipped.collect::<Vec<_>>(),
        "notes": report.notes.iter().map(|note| shortened(note, NOTE_CHARS_MAX)).collect::<Vec<_>>(),
    })
}

fn quantity(line: &QuantityLine) -> Value {
    json!({
        "class": line.class.as_str(),
        "day": line.key.day.to_string(),
        "model": line.key.model.as_deref().map(name),
        "credential": line.key.credential.as_deref().map(name),
        "unit": line.measure.name(),
        "theirs": count(line.theirs),
        "ours": count(line.ours),
        "difference": count(line.theirs.saturating_sub(line.ours)),
    })
}

fn amount(line: &MoneyLine) -> Value {
    json!({
        "class": line.class.as_str(),
        "day": line.key.day.to_string(),
        "model": line.key.model.as_deref().map(name),
        "credential": line.key.credential.as_deref().map(name),
        "theirs": line.theirs.to_string(),
        "items": by_name(&line.items),
        "ours": line.ours.to_string(),
        "losses": line.losses.to_string(),
        "difference": line.theirs.minus(line.ours).to_string(),
        "because": line.because.iter().map(|class| class.as_str()).collect::<Vec<_>>(),
    })
}

/// A count as a number, or as text where no number of JSON holds it exactly.
fn count(count: i128) -> Value {
    i64::try_from(count).map_or_else(|_| json!(count.to_string()), |count| json!(count))
}
