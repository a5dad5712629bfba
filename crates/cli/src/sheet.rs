//! Tables of the admin API's documents: their fields and titles, one declaration per document. [`Sheet`]
//! renders the table.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::Value;

use super::terminal::one_line;
use tollgate_types::printable::escaped;

/// Table layout of a document.
#[derive(Debug)]
pub(super) struct Sheet {
    /// JSON pointer to the rows; empty for a document that is one row itself.
    pub(super) rows: &'static str,
    /// JSON pointer to a list within each row, whose items become rows; columns that begin with `..`
    /// refer to the outer row.
    pub(super) below: &'static str,
    /// Columns of a row, from left to right; of a single document, from top to bottom.
    pub(super) columns: &'static [Column],
    /// JSON pointer to the value that a script needs of a row.
    pub(super) main: &'static str,
}

/// Title, JSON pointer and format of a column.
pub(super) type Column = (&'static str, &'static str, ValueFormat);

/// Format of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueFormat {
    /// Left-aligned text, truncated to a limit.
    Text,
    /// Left-aligned text, not truncated: the gateway's own sentences.
    Whole,
    /// Right-aligned: amounts and counts.
    Figure,
    /// A list in which `null` means everything, such as the models of a key.
    All,
}

/// Placeholder for an absent value.
const NOTHING: &str = "-";

impl Sheet {
    /// Layout of a single document.
    pub(super) const fn one(main: &'static str, columns: &'static [Column]) -> Self {
        Self { rows: "", below: "", columns, main }
    }

    /// Layout of a list of the admin API.
    pub(super) const fn list(main: &'static str, columns: &'static [Column]) -> Self {
        Self { rows: "/data", below: "", columns, main }
    }

    /// Rows of a document; a single document is one row.
    pub(super) fn rows<'a>(&self, document: &'a Value) -> Vec<&'a Value> {
        match document.pointer(self.rows) {
            Some(Value::Array(rows)) if !self.rows.is_empty() => rows.iter().collect(),
            Some(Value::Null) | None => Vec::new(),
            Some(row) => vec![row],
        }
    }

    /// Main value of each row, one a line.
    pub(super) fn main_values(&self, document: &Value) -> Vec<String> {
        let rows = self.rows(document).into_iter();
        rows.map(|row| shown(row.pointer(self.main), ValueFormat::Whole)).collect()
    }

    /// Titles of the columns.
    pub(super) fn titles(&self) -> Vec<String> {
        self.columns.iter().map(|(title, ..)| title.to_uppercase()).collect()
    }

    /// Cells of one row.
    pub(super) fn cells(&self, row: &Value) -> Vec<String> {
        self.columns.iter().map(|(_, at, kind)| shown(row.pointer(at), *kind)).collect()
    }

    /// Line of a growing table; widens the given column widths if needed.
    pub(super) fn line(&self, cells: &[String], widths: &mut [usize]) -> String {
        let mut line = String::new();
        for ((cell, width), (_, _, kind)) in cells.iter().zip(widths).zip(self.columns) {
            let letters = cell.chars().count();
            // A tail prints before it knows later rows: columns only ever grow.
            *width = (*width).max(letters);
            let padding = " ".repeat(width.saturating_sub(letters));
            let (before, behind) = if *kind == ValueFormat::Figure {
                (padding.as_str(), "")
            } else {
                ("", padding.as_str())
            };
            line.extend([before, cell, behind, "  "]);
        }
        line.trim_end().to_owned()
    }

    /// Render the table of a document, without a trailing line break.
    pub(super) fn table(&self, document: &Value) -> String {
        let mut table = Table::new();
        // Never wrapped to the terminal: scripts cut these columns, and a pipe has no width.
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if self.rows.is_empty() {
            for (title, at, kind) in self.columns {
                table.add_row([(*title).to_owned(), shown(document.pointer(at), *kind)]);
            }
        } else {
            table.set_header(self.titles());
            for row in self.rows(document) {
                self.add(&mut table, row);
            }
            for (index, (_, _, kind)) in self.columns.iter().enumerate() {
                if let Some(column) =
                    table.column_mut(index).filter(|_| *kind == ValueFormat::Figure)
                {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        table.trim_fmt()
    }

    fn add(&self, table: &mut Table, row: &Value) {
        let line = |inner: &Value| {
            let cell = |(_, at, kind): &Column| match at.strip_prefix("..") {
                Some(at) => shown(row.pointer(at), *kind),
                None => shown(inner.pointer(at), *kind),
            };
            self.columns.iter().map(cell).collect::<Vec<_>>()
        };
        if self.below.is_empty() {
            table.add_row(line(row));
            return;
        }
        let inner = row.pointer(self.below).and_then(Value::as_array);
        let inner = inner.map_or(&[][..], Vec::as_slice);
        // An outer row with nothing below it is seen all the same.
        for inner in if inner.is_empty() { &[Value::Null][..] } else { inner } {
            table.add_row(line(inner));
        }
    }
}

/// Render a value as a cell.
fn shown(value: Option<&Value>, kind: ValueFormat) -> String {
    let text = match value {
        Some(Value::Null) if kind == ValueFormat::All => "all".to_owned(),
        None | Some(Value::Null) => NOTHING.to_owned(),
        Some(Value::Bool(true)) => "yes".to_owned(),
        Some(Value::Bool(false)) => "no".to_owned(),
        Some(Value::String(text)) if text.is_empty() => NOTHING.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) if items.is_empty() => "none".to_owned(),
        Some(Value::Array(items)) => {
            let items: Vec<_> = items.iter().map(|item| shown(Some(item), kind)).collect();
            items.join(", ")
        }
        // Objects, such as price rules, are shown as their JSON.
        Some(value) => value.to_string(),
    };
    // What customers have named is no line of its own, whatever it is. An array was cut item by item.
    match value {
        Some(Value::Array(_)) => text,
        _ if kind == ValueFormat::Whole => escaped(&text).into_owned(),
        _ => one_line(&text).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MONEY: Sheet = Sheet {
        rows: "/data",
        below: "",
        columns: &[
            ("id", "/id", ValueFormat::Text),
            ("left", "/balance/left", ValueFormat::Figure),
        ],
        main: "/id",
    };

    #[test]
    fn money_is_aligned_at_its_end() {
        let document = json!({"data": [
            {"id": "a", "balance": {"left": "10.00"}},
            {"id": "longer", "balance": {"left": "1234.567"}},
            {"id": "\u{1b}[2J", "balance": {"left": null}},
        ]});
        let table = MONEY.table(&document);
        let expected =
            "ID             LEFT\na             10.00\nlonger     1234.567\n\\u001b[2J         -";
        assert_eq!(table, expected);
        assert_eq!(MONEY.main_values(&document), ["a", "longer", "\\u001b[2J"]);
    }

    #[test]
    fn what_is_below_a_row_is_a_row_each() {
        let sheet = Sheet {
            rows: "/upstreams",
            below: "/targets",
            columns: &[
                ("upstream", "../name", ValueFormat::Text),
                ("model", "/model", ValueFormat::Text),
            ],
            main: "/name",
        };
        let document = json!({"upstreams": [
            {"name": "x", "targets": [{"model": "m"}, {"model": "n"}]},
            {"name": "y", "targets": []},
        ]});
        assert_eq!(
            sheet.table(&document),
            "UPSTREAM  MODEL\nx         m\nx         n\ny         -"
        );
    }

    #[test]
    fn one_document_is_shown_from_top_to_bottom() {
        let sheet = Sheet {
            rows: "",
            below: "",
            columns: &[("models", "/models", ValueFormat::All), ("on", "/on", ValueFormat::Text)],
            main: "/on",
        };
        assert_eq!(sheet.table(&json!({"models": null, "on": true})), "models  all\non      yes");
        assert_eq!(sheet.table(&json!({"models": [], "on": 1})), "models  none\non      1");
    }
}
