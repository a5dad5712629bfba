//! The journal's records for other programs: one JSON object a line, or one row of CSV.
//!
//! What is secret stays: hashes of keys, codes and passwords, what protocols note of a request, and where webhooks go.

mod record;

use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::records::record::Record;
use tollgate_money::price::{UNITS, Unit};
use tollgate_types::ids::Seq;

pub use record::ExportedRecord;

/// Format of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[schemars(rename = "ExportFormat")]
#[serde(rename_all = "snake_case")]
pub enum ExportFormat {
    /// One JSON object a line.
    #[default]
    Jsonl,
    /// A header line, then one row per record.
    Csv,
    /// CSV with the columns of FOCUS 1.0: one row per charge or refund.
    Focus,
}

/// The columns of a row before those of the units.
const BEFORE: [&str; 16] = [
    "seq",
    "at",
    "account_id",
    "kind",
    "id",
    "name",
    "amount",
    "charged",
    "written_off",
    "hold",
    "key_id",
    "request_id",
    "task_id",
    "model",
    "reason",
    "usage_source",
];
/// Last columns of a row.
const BEHIND: [&str; 2] = ["owed", "details"];

/// Columns of a row. Other fields of a record are in `details`, as JSON.
pub const CSV_COLUMNS: [&str; BEFORE.len() + Unit::COUNT + BEHIND.len()] = {
    let mut columns = [""; BEFORE.len() + Unit::COUNT + BEHIND.len()];
    let mut at = 0;
    while at < columns.len() {
        columns[at] = if at < BEFORE.len() {
            BEFORE[at]
        } else if at < BEFORE.len() + Unit::COUNT {
            UNITS[at - BEFORE.len()].name
        } else {
            BEHIND[at - BEFORE.len() - Unit::COUNT]
        };
        at += 1;
    }
    columns
};

impl ExportFormat {
    /// Media type of the exported file.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Jsonl => "application/jsonl",
            Self::Csv | Self::Focus => "text/csv; charset=utf-8",
        }
    }

    /// Bytes before the first record; empty for FOCUS, whose header the exporter writes.
    #[must_use]
    pub(super) fn head(self) -> Vec<u8> {
        match self {
            Self::Jsonl | Self::Focus => Vec::new(),
            Self::Csv => row(CSV_COLUMNS.iter().map(ToString::to_string)),
        }
    }

    /// The record at `seq`, with the end of its line; of FOCUS, where a row needs more than one
    /// record, nothing.
    #[must_use]
    pub(super) fn line(self, seq: Seq, record: &Record) -> Vec<u8> {
        match self {
            Self::Jsonl => {
                let mut line =
                    serde_json::to_vec(&ExportedRecord::of(seq, record)).unwrap_or_default();
                line.push(b'\n');
                line
            }
            Self::Csv => row(cells(seq, record)),
            Self::Focus => Vec::new(),
        }
    }
}

/// A record's cells, in the order of [`CSV_COLUMNS`].
fn cells(seq: Seq, record: &Record) -> Vec<String> {
    let mut fields = match serde_json::to_value(ExportedRecord::of(seq, record)) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    // The counts of what was used have columns of their own.
    if let Some(Value::Object(usage)) = fields.remove("usage") {
        fields.extend(usage);
    }
    let (details, columns) = CSV_COLUMNS.split_last().map_or(("", &[][..]), |(a, b)| (*a, b));
    let cell = |name: &&str| match (*name, fields.remove(*name).unwrap_or_default()) {
        ("id" | "name", Value::String(typed)) => chosen(&typed),
        (_, value) => text(value),
    };
    let mut cells: Vec<String> = columns.iter().map(cell).collect();
    fields.retain(|_, value| !value.is_null());
    debug_assert_eq!(details, "details", "the last column takes what is left");
    cells.push(if fields.is_empty() { String::new() } else { Value::Object(fields).to_string() });
    cells
}

fn text(value: Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// A text that somebody has chosen, for a cell. Programs for tables take one that begins like a formula for
/// a formula, and run it: it begins with an apostrophe here, which they do not show.
pub(super) fn chosen(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if is_formula { format!("'{text}") } else { text.to_owned() }
}

/// Appends a CSV row, quoted where necessary. Writing to memory does not fail.
pub(super) fn row(cells: impl IntoIterator<Item = String>) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    match writer.write_record(cells) {
        Ok(()) => writer.into_inner().unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::records::key::Key;
    use tollgate_money::money::Nanousd;
    use tollgate_money::price::{Usage, UsageSource};
    use tollgate_types::clock::UnixMs;
    use tollgate_types::ids::{AccountId, HoldId, KeyId};
    use tollgate_types::secret::Secret;

    fn settlement() -> Record {
        Record::Posted {
            account: AccountId::from_number(1),
            hold: HoldId::from_number(7),
            charged: Nanousd::new(150_000),
            written_off: Nanousd::ZERO,
            usage: Usage { input_tokens: 9, output_tokens: 12, ..Usage::ZERO },
            source: UsageSource::Upstream,
            at: UnixMs(1_769_860_800_123),
        }
    }

    #[test]
    fn a_line_of_json_has_the_words_of_the_api() {
        let line = ExportFormat::Jsonl.line(8, &settlement());
        let json: Value = serde_json::from_slice(&line).expect("JSON");
        assert_eq!(line.last(), Some(&b'\n'));
        assert_eq!(json["seq"], 8);
        assert_eq!(json["at"], "2026-01-31T12:00:00.123Z");
        assert_eq!(json["account_id"], "acct_0000000000000001");
        assert_eq!(json["kind"], "settlement");
        assert_eq!(json["charged"], "0.00015");
        assert_eq!(json["usage"]["output_tokens"], 12);
    }

    #[test]
    fn a_row_has_a_cell_for_each_column_and_says_the_same() {
        let head = String::from_utf8(ExportFormat::Csv.head()).expect("text");
        assert_eq!(head.trim_end().split(',').collect::<Vec<_>>(), CSV_COLUMNS);
        let row = String::from_utf8(ExportFormat::Csv.line(8, &settlement())).expect("text");
        let cells: Vec<_> = row.trim_end_matches('\n').split(',').collect();
        assert_eq!(cells.len(), CSV_COLUMNS.len(), "{row}");
        let cell = |name: &str| {
            CSV_COLUMNS.iter().position(|column| *column == name).and_then(|at| cells.get(at))
        };
        assert_eq!(cell("charged"), Some(&"0.00015"));
        assert_eq!(cell("output_tokens"), Some(&"12"));
        assert_eq!(cell("details"), Some(&""));
    }

    #[test]
    fn what_could_break_a_row_is_quoted_and_no_hash_leaves() {
        let secret = Secret::new_api_key();
        let key = Key {
            id: KeyId::from_number(2),
            account: AccountId::from_number(1),
            hash: tollgate_types::secret::KeyHash::of(secret.expose().as_bytes()),
            name: "=a \"quoted\",\nname".to_owned(),
            models: Some(vec!["m".to_owned()]),
            expires_at: None,
            disabled: false,
            created_at: UnixMs(1),
            updated_at: UnixMs(1),
        };
        let record = Record::KeyCreated(Arc::new(key));
        let row = ExportFormat::Csv.line(3, &record);
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(row.as_slice());
        let row = reader.records().next().expect("a row").expect("CSV");
        assert_eq!(row.get(5), Some("'=a \"quoted\",\nname"));
        assert_eq!(row.get(CSV_COLUMNS.len() - 1), Some(r#"{"disabled":false,"models":["m"]}"#));
        let line = String::from_utf8(ExportFormat::Jsonl.line(3, &record)).expect("text");
        assert!(!line.contains("hash"), "{line}");
    }
}
