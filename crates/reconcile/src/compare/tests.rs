//! Statements against journals of a few calls.

use tollgate_money::money::Nanousd;
use tollgate_money::price::Usage;

use super::*;
use crate::day::Day;
use crate::own::OwnKind;
use crate::source::{StatementFile, read};
use crate::statement::Provider;

/// A day of January 2026.
fn january(day: u32) -> Day {
    Day::parse(&format!("2026-01-{day:02}")).expect("a day")
}

/// A call on a day of January 2026 with so many tokens of input and output, at 1000 nano-dollars.
fn call(day: u32, model: &str, input: u64, output: u64) -> OwnLine {
    let mut usage = Usage::ZERO;
    (usage.input_tokens, usage.output_tokens) = (input, output);
    let day = january(day);
    OwnLine {
        day,
        began: day,
        upstream: "there".to_owned(),
        credential: String::new(),
        model: model.to_owned(),
        kind: OwnKind::Answer,
        is_estimated: false,
        calls: 1,
        usage,
        cost: Nanousd::new(i64::try_from((input + output) * 1000).expect("small")),
        loss: Nanousd::ZERO,
    }
}

fn estimated(line: OwnLine, loss: i64) -> OwnLine {
    OwnLine { is_estimated: true, loss: Nanousd::new(loss), ..line }
}

/// Holds rows of a CSV statement against the journal: its differences as text, and the report.
fn compare(rows: &str, own: &[OwnLine]) -> (Vec<String>, Reconciliation) {
    let text = format!("day,model,credential,unit,quantity,amount\n{rows}");
    let file = StatementFile { name: "f", bytes: text.as_bytes() };
    let statement = read(Provider::Csv, &[file]).expect("a statement");
    let report = reconcile(own, &statement, &CredentialNames::new());
    let quantities = report.quantities.iter().map(|line| {
        let (day, unit) = (line.key.day, line.measure.name());
        format!("{} {day} {unit} {}", line.class.as_str(), line.theirs - line.ours)
    });
    let amounts = report.amounts.iter().map(|line| {
        let difference = line.theirs.minus(line.ours);
        format!("{} {} amount {difference}", line.class.as_str(), line.key.day)
    });
    (quantities.chain(amounts).collect(), report)
}

#[test]
fn amounts_alone_have_the_classes_that_they_can_show() {
    let retry = OwnLine { kind: OwnKind::Retry, ..estimated(call(4, "m", 50, 50), 0) };
    let own = [
        call(1, "m", 50, 50),
        call(2, "m", 50, 50),
        estimated(call(3, "m", 50, 50), 40_000),
        call(4, "m", 50, 50),
        retry,
        call(6, "m", 50, 50),
        call(8, "m", 50, 50),
    ];
    let rows = "2026-01-01,m,,,,0.00003\n2026-01-02,m,,,,0.00017\n2026-01-03,m,,,,0.00013\n\
                2026-01-04,m,,,,0.0001\n2026-01-06,m,,,,0.00019\n2026-01-08,m,,,,0.0001\n\
                2026-01-08,stranger,,,,0.5\n";
    let (found, report) = compare(rows, &own);
    assert_eq!(
        found,
        [
            "lag 2026-01-01 amount -0.00007",
            "lag 2026-01-02 amount 0.00007",
            "tail 2026-01-03 amount 0.00003",
            "retry 2026-01-04 amount -0.0001",
            "unknown 2026-01-06 amount 0.00009",
            "elsewhere 2026-01-08 amount 0.50",
        ]
    );
    assert_eq!((report.agreeing, report.notes.len()), (1, 1), "{report:?}");
}

#[test]
fn an_amount_without_a_model_is_compared_by_day() {
    let own = [call(1, "m", 50, 50), call(1, "n", 50, 50)];
    let (found, report) = compare("2026-01-01,,,,,0.0002\n", &own);
    assert!(found.is_empty() && report.agreeing == 1, "{report:?}");
    assert!(report.notes.contains("amounts are not told apart by model"));
    let (found, report) = compare("2026-01-01,,,,,0.0002\n2026-01-01,m,,,,0.0001\n", &own);
    assert_eq!(found, ["unknown 2026-01-01 amount -0.0001"], "of the other model");
    assert_eq!(report.skipped["amounts without a model"].amount.to_string(), "0.0002");
}

#[test]
fn an_estimate_does_not_know_what_came_from_a_cache() {
    let own = [call(1, "m", 50, 50), estimated(call(1, "m", 100, 20), 0)];
    let rows = "2026-01-01,m,,input_tokens,70,\n2026-01-01,m,,cache_read_tokens,90,\n\
                2026-01-01,m,,output_tokens,300,\n";
    let expected = [
        "tail 2026-01-01 input_tokens -80",
        "tail 2026-01-01 cache_read_tokens 90",
        "tail 2026-01-01 output_tokens 230",
    ];
    assert_eq!(compare(rows, &own).0, expected);
    let less = rows.replace(",70,", ",40,");
    let expected = [
        "unknown 2026-01-01 input_tokens -110",
        "unknown 2026-01-01 cache_read_tokens 90",
        "tail 2026-01-01 output_tokens 230",
    ];
    assert_eq!(compare(&less, &own).0, expected, "less than the provider itself has said");
}

#[test]
fn an_amount_chooses_between_the_classes_of_its_quantities() {
    let retry = OwnLine { kind: OwnKind::Retry, ..estimated(call(1, "m", 50, 50), 0) };
    let own = [call(1, "m", 50, 50), estimated(call(1, "m", 50, 50), 7000), retry];
    let rows = |amount: &str| {
        format!("2026-01-01,m,,input_tokens,110,{amount}\n2026-01-01,m,,output_tokens,300,\n")
    };
    let (found, report) = compare(&rows("0.00041"), &own);
    let expected = [
        "retry 2026-01-01 input_tokens -40",
        "tail 2026-01-01 output_tokens 150",
        "tail 2026-01-01 amount 0.00011",
    ];
    assert_eq!(found, expected);
    assert_eq!(report.amounts[0].losses.to_string(), "0.000007");
    assert_eq!(compare(&rows("0.00021"), &own).0[2], "retry 2026-01-01 amount -0.00009");
    assert_eq!(compare(&rows("0.00009"), &own).0[2], "unknown 2026-01-01 amount -0.00021");
}

#[test]
fn what_nothing_explains_is_unknown() {
    let own = [call(1, "m", 50, 50)];
    let rows = "2026-01-01,m,,input_tokens,60,0.00006\n2026-01-01,m,,output_tokens,50,0.0001\n";
    let expected = ["unknown 2026-01-01 input_tokens 10", "unknown 2026-01-01 amount 0.00006"];
    assert_eq!(compare(rows, &own).0, expected);
    let more = format!("{rows}2026-01-01,m,,calls,2,\n");
    assert!(compare(&more, &own).0.iter().all(|line| line.starts_with("elsewhere")));
}

#[test]
fn rounding_of_calls_is_agreement_and_a_micro_dollar_is_not() {
    let many: Vec<_> = (0..5000).map(|_| call(1, "m", 1, 0)).collect();
    let rows = |amount: &str| format!("2026-01-01,m,,input_tokens,5000,{amount}\n");
    let expected: [&str; 0] = [];
    assert_eq!(compare(&rows("0.005000999"), &many).0, expected);
    assert_eq!(compare(&rows("0.005001"), &many).0, ["price 2026-01-01 amount 0.000001"]);
    assert_eq!(compare(&rows("0.004995"), &many).0, expected, "5000 calls are rounded up");
    assert_eq!(compare(&rows("0.004994"), &many).0, ["price 2026-01-01 amount -0.000006"]);
}

#[test]
fn what_the_statement_cannot_have_is_not_compared() {
    let own = [call(1, "m", 50, 50), call(1, "embedding", 70, 0), call(9, "m", 1, 1)];
    let page = r#"{"data": [{"start_time": 1767225600, "end_time": 1767312000, "results": [
        {"object": "organization.usage.completions.result", "model": "m", "input_tokens": 50,
         "output_tokens": 50}]}]}"#;
    let file = StatementFile { name: "f", bytes: page.as_bytes() };
    let statement = read(Provider::OpenAi, &[file]).expect("a statement");
    let report = reconcile(&own, &statement, &CredentialNames::new());
    assert!(!report.is_different() && report.agreeing == 2, "{report:?}");
    let skipped: Vec<_> = report.skipped.keys().map(String::as_str).collect();
    assert_eq!(
        skipped,
        [
            "calls of ours on days that the statement does not have",
            "the model embedding: the usage export has none of it"
        ]
    );
}

#[test]
fn one_estimated_answer_does_not_cover_requests_of_others() {
    let own = [call(1, "m", 50, 50), estimated(call(1, "m", 50, 50), 40_000)];
    let rows = "2026-01-01,m,,calls,2002,\n2026-01-01,m,,output_tokens,5000100,5.0002\n\
                2026-01-01,m,,input_tokens,100,\n";
    let expected =
        ["elsewhere 2026-01-01 output_tokens 5000000", "elsewhere 2026-01-01 amount 5.00"];
    assert_eq!(compare(rows, &own).0, expected);
    let ours = rows.replace(",2002,", ",2,");
    let expected = ["tail 2026-01-01 output_tokens 5000000", "tail 2026-01-01 amount 5.00"];
    assert_eq!(compare(&ours, &own).0, expected, "in no more requests than ours");
}

#[test]
fn an_amount_of_several_classes_is_of_others_where_requests_are_more() {
    let retry = OwnLine { kind: OwnKind::Retry, ..estimated(call(1, "m", 50, 0), 0) };
    let own = [call(1, "m", 50, 50), estimated(call(1, "m", 50, 50), 0), retry];
    let rows = "2026-01-01,m,,calls,9,\n2026-01-01,m,,input_tokens,120,0.00082\n\
                2026-01-01,m,,output_tokens,700,\n";
    let expected = [
        "retry 2026-01-01 input_tokens -30",
        "elsewhere 2026-01-01 output_tokens 600",
        "elsewhere 2026-01-01 amount 0.00057",
    ];
    assert_eq!(compare(rows, &own).0, expected);
}

/// A call settled on a day of January 2026 that began on the day before.
fn over_midnight(day: u32, model: &str, input: u64, output: u64) -> OwnLine {
    OwnLine { began: january(day - 1), ..call(day, model, input, output) }
}

#[test]
fn calls_over_midnight_are_lag_even_at_the_edges_of_the_statement() {
    // The provider counts all of them on the day on which they began.
    let own = [
        over_midnight(2, "m", 30, 20),
        call(2, "m", 50, 50),
        over_midnight(3, "m", 7, 900),
        call(3, "m", 50, 50),
        over_midnight(4, "m", 60, 50),
    ];
    let rows = "2026-01-02,m,,input_tokens,57,\n2026-01-02,m,,output_tokens,950,\n\
                2026-01-02,m,,calls,2,\n2026-01-02,m,,,,0.001007\n\
                2026-01-03,m,,input_tokens,110,\n2026-01-03,m,,output_tokens,100,\n\
                2026-01-03,m,,calls,2,\n2026-01-03,m,,,,0.00021\n";
    let expected = [
        "lag 2026-01-02 input_tokens -23",
        "lag 2026-01-02 output_tokens 880",
        "lag 2026-01-03 input_tokens 53",
        "lag 2026-01-03 output_tokens -850",
        "lag 2026-01-02 amount 0.000857",
        "lag 2026-01-03 amount -0.000797",
    ];
    assert_eq!(compare(rows, &own).0, expected);
    let one: String = rows.lines().take(4).map(|row| format!("{row}\n")).collect();
    assert_eq!(
        compare(&one, &own).0,
        [expected[0], expected[1], expected[4]],
        "a statement of one day"
    );
    let more = one.replace("output_tokens,950", "output_tokens,951");
    assert_eq!(compare(&more, &own).0[1], "unknown 2026-01-02 output_tokens 881");
    let amounts = "2026-01-02,m,,,,0.001007\n2026-01-03,m,,,,0.00021\n";
    assert_eq!(compare(amounts, &own).0, expected[4..], "without quantities");
}

#[test]
fn a_model_is_compared_by_what_its_pages_tell() {
    let mut drawn = call(1, "painter", 40, 900);
    drawn.usage.images = 3;
    let own = [call(1, "m", 50, 50), drawn];
    let pages = r#"[{"data": [{"start_time": 1767225600, "end_time": 1767312000, "results": [
        {"object": "organization.usage.completions.result", "model": "m", "input_tokens": 50,
         "output_tokens": 50}]}]},
        {"data": [{"start_time": 1767225600, "end_time": 1767312000, "results": [
        {"object": "organization.usage.images.result", "model": "painter", "images": 3}]}]},
        {"data": [{"start_time": 1767225600, "end_time": 1767312000, "results": [
        {"object": "organization.costs.result", "line_item": "painter, output", "amount":
         {"value": 0.5, "currency": "usd"}},
        {"object": "organization.costs.result", "line_item": "m, output", "amount":
         {"value": 0.0001, "currency": "usd"}}]}]}]"#;
    let read_pages = |pages: &str| {
        let file = StatementFile { name: "f", bytes: pages.as_bytes() };
        let statement = read(Provider::OpenAi, &[file]).expect("a statement");
        reconcile(&own, &statement, &CredentialNames::new())
    };
    let report = read_pages(pages);
    assert!(report.quantities.is_empty(), "{report:?}");
    let classes: Vec<_> = report.amounts.iter().map(|line| line.class).collect();
    assert_eq!(classes, [DifferenceClass::Unknown], "its tokens are not told");
    let report = read_pages(&pages.replace("\"images\": 3", "\"images\": 4"));
    assert_eq!(report.quantities.len(), 1, "{report:?}");
    assert_eq!(report.quantities[0].measure.name(), "images");
}

#[test]
fn requests_are_compared_where_all_else_agrees() {
    let retry = OwnLine { kind: OwnKind::Retry, ..estimated(call(1, "m", 0, 0), 0) };
    let own = [call(1, "m", 50, 50), call(1, "m", 50, 50), retry];
    let rows = |calls: u32| {
        format!(
            "2026-01-01,m,,input_tokens,100,0.0002\n2026-01-01,m,,output_tokens,100,\n\
             2026-01-01,m,,calls,{calls},\n"
        )
    };
    for (calls, expected) in [
        (3, None),
        (4, Some("elsewhere 2026-01-01 calls 1")),
        (2, Some("retry 2026-01-01 calls -1")),
        (1, Some("unknown 2026-01-01 calls -2")),
    ] {
        let (found, report) = compare(&rows(calls), &own);
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{calls}");
        assert_eq!(report.agreeing, if expected.is_some() { 3 } else { 4 }, "{report:?}");
    }
    let own = [over_midnight(2, "m", 50, 50), call(1, "m", 50, 50)];
    let row = "2026-01-01,m,,calls,2,0.0002\n";
    let expected = ["lag 2026-01-01 calls 1", "lag 2026-01-01 amount 0.0001"];
    assert_eq!(compare(row, &own).0, expected);
    let embedded = [call(1, "m", 100, 0)];
    let row = "2026-01-01,m,,input_tokens,100,\n2026-01-01,m,,calls,2,\n";
    assert!(compare(row, &embedded).0.is_empty(), "an array in two parts");
}

#[test]
fn requests_alone_are_no_quantities_of_an_amount() {
    let own = [call(1, "m", 50, 50)];
    let rows = |calls: u32| format!("2026-01-01,m,,calls,{calls},\n2026-01-01,m,,,,0.0002\n");
    assert_eq!(compare(&rows(1), &own).0, ["unknown 2026-01-01 amount 0.0001"]);
    let expected = ["elsewhere 2026-01-01 calls 1", "elsewhere 2026-01-01 amount 0.0001"];
    assert_eq!(compare(&rows(2), &own).0, expected);
    let own = [estimated(call(1, "m", 50, 50), 0)];
    assert_eq!(compare(&rows(1), &own).0, ["tail 2026-01-01 amount 0.0001"]);
}

#[test]
fn fees_of_no_model_are_compared_by_day() {
    let searching = |day, model: &str| {
        let mut line = call(day, model, 50, 50);
        line.usage.web_searches = 2;
        line.cost = Nanousd::new(line.cost.get() + 20_000_000);
        line
    };
    let own = [searching(1, "m"), searching(1, "n"), call(1, "o", 50, 50), searching(2, "m")];
    let amount = |model: &str, description: &str, cents: &str| {
        format!(
            "{{\"amount\": \"{cents}\", \"currency\": \"USD\", \"model\": {model}, \
             \"description\": \"{description}\"}}"
        )
    };
    let report = |fee: &str| {
        let day = |day: u32, results: &[String]| {
            format!(
                "{{\"starting_at\": \"2026-01-{day:02}T00:00:00Z\", \"ending_at\": \
                 \"2026-01-{:02}T00:00:00Z\", \"results\": [{}]}}",
                day + 1,
                results.join(", ")
            )
        };
        let tokens = |model: &str| amount(&format!("\"{model}\""), "tokens", "0.01");
        let first =
            [tokens("m"), tokens("n"), tokens("o"), amount("null", "Web Search Usage", fee)];
        let second = [tokens("m"), amount("null", "Web Search Usage", "2")];
        let page = format!("{{\"data\": [{}, {}]}}", day(1, &first), day(2, &second));
        let file = StatementFile { name: "f", bytes: page.as_bytes() };
        let statement = read(Provider::Anthropic, &[file]).expect("a statement");
        reconcile(&own, &statement, &CredentialNames::new())
    };
    let same = report("4");
    assert!(!same.is_different() && same.skipped.is_empty(), "{same:?}");
    assert_eq!(same.agreeing, 4);
    let other = report("5");
    let lines: Vec<_> = other
        .amounts
        .iter()
        .map(|line| (line.key.model.as_deref().unwrap_or_default(), line.class))
        .collect();
    assert_eq!(lines, [("m", DifferenceClass::Unknown), ("n", DifferenceClass::Unknown)]);
    assert_eq!(other.skipped["the cost Web Search Usage"].amount.to_string(), "0.05");
}
