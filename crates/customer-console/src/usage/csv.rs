//! Usage as a file for spreadsheets (RFC 4180): a row for each day, model and key.

use axum::extract::{Query, State};
use axum::http::header;
use axum::response::IntoResponse as _;

use super::{UsageDaysQuery, UsagePeriod, used};
use crate::CustomerConsole;
use crate::customer::{LoggedInCustomer, PageResult};
use crate::key_names::KeyNames;
use tollgate_ledger::UsageRow;
use tollgate_money::price::Usage;
use tollgate_types::clock::UnixMs;
use tollgate_web_kit::show;

/// Columns before and after those of the units.
const BEFORE: [&str; 5] = ["date", "model", "key_id", "key_name", "calls"];
const BEHIND: &str = "cost_usd";

/// `GET /usage.csv`
pub(crate) async fn download(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Query(query): Query<UsageDaysQuery>,
) -> PageResult {
    let period = UsagePeriod::from_query(&query, UnixMs::now());
    let used = used(&console, &customer, &period).await?;
    let names = KeyNames::load(&console, &customer);
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
        // RFC 4180 ends lines with CRLF.
        csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    let describe = |error: csv::Error| error.to_string();
    let units = Usage::ZERO.shown().map(|(unit, _)| unit.name);
    writer.write_record(BEFORE.into_iter().chain(units).chain([BEHIND])).map_err(describe)?;
    for UsageRow { begin: day, model, key, total } in used {
        let counts = [total.calls].into_iter().chain(total.usage.shown().map(|(_, count)| count));
        // Names are typed by people; ids and days have a fixed form.
        let texts = [show::day(day), plain(model), key.to_string(), plain(&names.name(*key))];
        let cells = texts
            .into_iter()
            .chain(counts.map(|count| count.to_string()))
            .chain([total.charged.to_string()]);
        writer.write_record(cells).map_err(describe)?;
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
