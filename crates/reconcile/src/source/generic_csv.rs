//! A CSV file for any other provider, with the columns `day`, `model`, `credential`, `unit`, `quantity`
//! and `amount`, in any order. `credential` may be left out.
//!
//! A day, model, credential and unit has one row, as a second one may be the first again.
//! A unit is one of the gateway's, `calls` for the number of requests, or empty for an amount that is not
//! of one unit. Of quantity and amount, one may be empty. Amounts are US dollars.

use tollgate_money::price::UNITS;

use super::Pages;
use crate::amount::{Currency, Femtousd};
use crate::day::Day;
use crate::statement::{BilledKey, BilledStatement, Measure, StatementError};

const COLUMNS: [&str; 6] = ["day", "model", "credential", "unit", "quantity", "amount"];
/// Optional column, absent for a provider with one credential.
const OPTIONAL: &str = "credential";
/// The word for the number of requests among the units.
const CALLS: &str = "calls";

pub(super) fn read(
    text: &str,
    name: &str,
    pages: &mut Pages,
    statement: &mut BilledStatement,
) -> Result<(), StatementError> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let refuse =
        |line: u64, why: String| StatementError::new(&format!("{name}, line {line},"), why);
    let headers = reader.headers().map_err(|error| refuse(1, format!("is not CSV: {error}")))?;
    if let Some(unknown) = headers.iter().find(|header| !COLUMNS.contains(header)) {
        return Err(refuse(
            1,
            format!("has a column {unknown:?}: known are {}", COLUMNS.join(", ")),
        ));
    }
    let mut places = Vec::new();
    for column in COLUMNS {
        let place = headers.iter().position(|header| header == column);
        // Spreadsheets allow it, and nobody can say which one counts.
        if headers.iter().filter(|header| *header == column).count() > 1 {
            return Err(refuse(1, format!("has the column {column} twice")));
        }
        if place.is_none() && column != OPTIONAL {
            return Err(refuse(1, format!("has no column {column}")));
        }
        places.push(place);
    }
    for record in reader.records() {
        let record = record.map_err(|error| {
            let line = error.position().map_or(0, csv::Position::line);
            refuse(line, format!("is not CSV: {error}"))
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        let mut cells = places.iter().map(|place| place.and_then(|at| record.get(at)));
        let row: [&str; COLUMNS.len()] =
            std::array::from_fn(|_| cells.next().flatten().unwrap_or_default());
        let [day, model, credential, unit, ..] = row;
        // A row twice is a file that was joined twice; added up, it would hide a difference.
        if !pages.is_new([day, model, credential, unit]) {
            let why = "is there twice: there is a row of its day, model, credential and unit";
            return Err(refuse(line, why.to_owned()));
        }
        add_row(&row, statement).map_err(|why| refuse(line, why))?;
    }
    Ok(())
}

fn add_row(row: &[&str; COLUMNS.len()], statement: &mut BilledStatement) -> Result<(), String> {
    let [day, model, credential, unit, quantity, amount] = *row;
    let day = Day::parse(day).ok_or_else(|| format!("has a day {day:?}: expected 2026-01-31"))?;
    let named = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let models = named(model).into_iter().collect();
    let key = BilledKey { day, models, ids: named(credential).into_iter().collect() };
    if quantity.is_empty() && amount.is_empty() {
        return Err("has neither a quantity nor an amount".to_owned());
    }
    let count = match quantity {
        "" => None,
        text => {
            let count = text.parse::<u64>();
            Some(count.map_err(|_| format!("has a quantity {text:?}: expected a whole number"))?)
        }
    };
    match (unit, count) {
        (CALLS, Some(count)) => statement.add_calls(&key, count),
        ("", Some(_)) => return Err("has a quantity of no unit".to_owned()),
        (CALLS | "", None) => {}
        (unit, count) => {
            let info = UNITS.iter().find(|info| info.name == unit);
            let info = info.ok_or_else(|| {
                let names: Vec<_> = UNITS.iter().map(|info| info.name).collect();
                format!("has a unit {unit:?}: known are calls, {}", names.join(", "))
            })?;
            if let Some(count) = count {
                // What has no line was not billed.
                let all = UNITS.iter().map(|info| Measure::Of(info.unit));
                statement.add_measures(&key, all);
                statement.add_quantity(&key, Measure::Of(info.unit), count);
            }
        }
    }
    if !amount.is_empty() {
        let amount = Femtousd::parse(amount, Currency::Dollars);
        let amount = amount.map_err(|why| format!("has an amount that {why}"))?;
        statement.add_amount(&key, named(unit), amount);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{StatementFile, read as read_files};
    use crate::statement::Provider;

    fn statement(text: &str) -> Result<BilledStatement, StatementError> {
        read_files(Provider::Csv, &[StatementFile { name: "f", bytes: text.as_bytes() }])
    }

    #[test]
    fn rows_are_read() {
        let text = include_str!("../../fixtures/invoice.csv");
        let statement = statement(text).expect("a statement");
        let counts: Vec<_> =
            statement.quantities.iter().map(|line| (line.measure.name(), line.count)).collect();
        assert_eq!(counts, [("input_tokens", 1200), ("output_tokens", 340)]);
        assert_eq!(statement.calls[0].count, 12);
        let amounts: Vec<_> =
            statement.amounts.iter().map(|line| line.amount.to_string()).collect();
        assert_eq!(amounts, ["0.003", "0.0034", "-0.001"]);
        assert_eq!(statement.quantities[0].key.ids, ["key_1"]);
    }

    #[test]
    fn what_is_garbled_is_refused_with_its_line() {
        let head = "day,model,unit,quantity,amount\n";
        for (row, expected) in [
            ("2026-13-01,m,input_tokens,1,1", "has a day"),
            ("2026-01-01,m,tokens,1,1", "has a unit \"tokens\""),
            ("2026-01-01,m,input_tokens,1.5,1", "has a quantity \"1.5\""),
            ("2026-01-01,m,input_tokens,18446744073709551616,1", "has a quantity"),
            ("2026-01-01,m,input_tokens,1,$1", "has an amount"),
            ("2026-01-01,m,input_tokens,,", "has neither"),
            ("2026-01-01,m,,5,1", "has a quantity of no unit"),
            ("2026-01-01,m,input_tokens,1", "is not CSV"),
        ] {
            let error = statement(&format!("{head}{row}\n")).expect_err(row).to_string();
            assert!(error.starts_with(&format!("f, line 2, {expected}")), "{row}: {error}");
        }
        for head in ["day,model,unit,quantity\n", "day,day,model,unit,quantity,amount\n", "a,b\n"] {
            let error = statement(head).expect_err(head).to_string();
            assert!(error.starts_with("f, line 1, has "), "{head}: {error}");
        }
        assert!(statement("").is_err(), "an empty file");
        assert!(statement("day,model,unit,quantity,amount\n").is_err(), "no rows");
    }
}
