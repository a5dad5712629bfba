//! Usage as a file for spreadsheets (RFC 4180): a row for each day, model and key.

use axum::extract::{Query, State};
use axum::http::header;
use axum::response::IntoResponse as _;

use super::{Asked, Period, used};
use crate::clock::UnixMs;
use crate::console::Console;
use crate::console::customer::{Answer, Customer};
use crate::console::key_names::KeyNames;
use crate::console::units;
use crate::ledger::UsageRow;
use crate::web::show;

const COLUMNS: [&str; 13] = [
    "date",
    "model",
    "key_id",
    "key_name",
    "calls",
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "output_tokens",
    "images",
    "seconds",
    "characters",
    "cost_usd",
];

/// `GET /usage.csv`
pub(in crate::console) async fn download(
    State(console): State<Console>,
    customer: Customer,
    Query(asked): Query<Asked>,
) -> Answer {
    let period = Period::of(&asked, UnixMs::now());
    let used = used(&console, &customer, &period).await?;
    let names = KeyNames::of(&console, &customer);
    let file = file(&used, &names).map_err(|error| {
        log::error!("usage could not be written as CSV: {error}");
        customer.broken(&console)
    })?;
    let (from, to) = (show::day(&period.begin), show::day(&period.today));
    let name = format!("attachment; filename=\"usage-{from}-to-{to}.csv\"");
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8; header=present".to_owned()),
        (header::CONTENT_DISPOSITION, name),
    ];
    Ok((headers, file).into_response())
}

fn file(used: &[UsageRow], names: &KeyNames) -> Result<Vec<u8>, String> {
    let mut writer =
        csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    let told = |error: csv::Error| error.to_string();
    writer.write_record(COLUMNS).map_err(told)?;
    for UsageRow { begin: day, model, key, total } in used {
        let usage = &total.usage;
        let counts = [
            total.calls,
            usage.input_tokens,
            usage.cache_read_tokens,
            units::cache_writes(usage),
            usage.output_tokens,
            usage.images,
            usage.seconds,
            usage.characters,
        ];
        let texts = [show::day(day), plain(model), key.to_string(), plain(&names.name(*key))];
        let cells = texts
            .into_iter()
            .chain(counts.map(|count| count.to_string()))
            .chain([total.charged.to_string()]);
        writer.write_record(cells).map_err(told)?;
    }
    writer.into_inner().map_err(|error| error.to_string())
}

/// A text that no spreadsheet takes for a formula (OWASP, "CSV Injection").
fn plain(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    if is_formula { format!("'{text}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula() {
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"] {
            assert_eq!(plain(text), format!("'{text}"));
        }
        for text in ["gpt-4o", "a=b", "", "\"=1\""] {
            assert_eq!(plain(text), text);
        }
    }
}
