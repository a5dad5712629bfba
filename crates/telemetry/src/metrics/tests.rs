use super::*;
use crate::finished::tests::finished;
use crate::request_log::LogFigures;
use tollgate_ledger::CreditSums;

/// Asserts that the text has each of these lines.
fn assert_lines(text: &str, expected: &[&str]) {
    for line in expected {
        assert!(text.lines().any(|it| it == *line), "{line:?} is missing from:\n{text}");
    }
}

#[test]
fn a_request_is_counted_in_every_way() {
    let metrics = Metrics::new();
    metrics.record(&finished());
    metrics.record(&finished());
    metrics.record(&FinishedRequest {
        status: 502,
        error_code: "BadGateway",
        settled: None,
        ..finished()
    });
    metrics.record(&FinishedRequest {
        status: 0,
        model: "",
        upstream: "",
        settled: None,
        ..finished()
    });
    let text = metrics.encode(&LedgerFigures::default(), LogFigures::default());
    let series = r#"model="m",route="/v1/chat/completions""#;
    let lines = [
        format!("tollgate_requests_total{{code=\"\",{series},status=\"2xx\",upstream=\"u\"}} 2"),
        format!(
            "tollgate_requests_total{{code=\"BadGateway\",{series},status=\"5xx\",upstream=\"u\"}} 1"
        ),
        format!("tollgate_request_duration_seconds_count{{{series},upstream=\"u\"}} 3"),
        format!(
            "tollgate_request_duration_seconds_bucket{{{series},upstream=\"u\",le=\"0.05\"}} 3"
        ),
        format!("tollgate_request_ttfb_seconds_bucket{{{series},upstream=\"u\",le=\"0.005\"}} 0"),
        format!("tollgate_request_ttfb_seconds_bucket{{{series},upstream=\"u\",le=\"0.01\"}} 3"),
    ];
    assert_lines(&text, &lines.each_ref().map(String::as_str));
    assert_lines(
        &text,
        &[
            r#"tollgate_requests_total{code="",model="",route="/v1/chat/completions",status="none",upstream=""} 1"#,
            r#"tollgate_tokens_total{kind="input",model="m"} 2"#,
            r#"tollgate_tokens_total{kind="cache_read",model="m"} 40"#,
            r#"tollgate_tokens_total{kind="cache_write",model="m"} 8600"#,
            r#"tollgate_tokens_total{kind="output",model="m"} 100000"#,
            r#"tollgate_spend_dollars_total{model="m"} 2.5"#,
            r#"tollgate_held_dollars_total{model="m"} 20"#,
            r#"tollgate_settlements_total{model="m",usage_source="upstream"} 2"#,
            r#"tollgate_settlements_total{model="m",usage_source="estimated"} 0"#,
        ],
    );
    assert!(
        !text.contains(r#"tollgate_tokens_total{kind="input",model=""}"#),
        "nothing was billed"
    );
}

#[test]
fn gauges_and_the_ledgers_figures_follow() {
    let metrics = Metrics::new();
    metrics.in_flight_begin();
    metrics.in_flight_begin();
    metrics.in_flight_end();
    assert_eq!(metrics.in_flight(), 1);
    metrics.body_bytes_add(1_000);
    metrics.body_bytes_sub(400);
    metrics.request_shed(Shed::Address);
    metrics.slot_taken(Pool::Customers);
    metrics.slot_taken(Pool::Unauthenticated);
    metrics.slot_left(Pool::Unauthenticated);
    metrics.config_loaded();
    metrics.config_reloaded(true);
    metrics.config_reloaded(false);
    metrics.journal_committed(Duration::from_micros(300), 5);
    let figures = |usd| LedgerFigures {
        open_holds: 3,
        open_tasks: 2,
        debt: Some(Nanousd::new(250_000_000)),
        credit: Some(CreditSums { lines: Nanousd::new(2_000_000_000), used: Nanousd::new(usd) }),
        written_off: Nanousd::new(usd),
        losses: [("retry".to_owned(), Nanousd::new(usd))].into(),
        ..LedgerFigures::default()
    };
    assert!(!metrics.encode(&figures(500_000_000), LogFigures::default()).is_empty());
    let text = metrics.encode(&figures(750_000_000), LogFigures::default());
    assert_lines(
        &text,
        &[
            "tollgate_requests_in_flight 1",
            "tollgate_request_body_bytes 600",
            r#"tollgate_requests_shed_total{reason="unauthenticated_address"} 1"#,
            r#"tollgate_requests_shed_total{reason="account_waiting"} 0"#,
            r#"tollgate_places_taken{pool="customers"} 1"#,
            r#"tollgate_places_taken{pool="unauthenticated"} 0"#,
            "tollgate_config_last_reload_successful 0",
            "tollgate_open_holds 3",
            "tollgate_ledger_projection_up 1",
            "tollgate_ledger_projection_repairs_total 0",
            "tollgate_debt_dollars 0.25",
            "tollgate_credit_lines_dollars 2",
            "tollgate_credit_used_dollars 0.75",
            "tollgate_written_off_dollars_total 0.75",
            r#"tollgate_operator_loss_dollars_total{cause="retry"} 0.75"#,
            "tollgate_journal_commit_records_sum 5",
            r#"tollgate_journal_commit_duration_seconds_bucket{le="0.00025"} 0"#,
            r#"tollgate_journal_commit_duration_seconds_bucket{le="0.0005"} 1"#,
        ],
    );
    let loaded = "tollgate_config_last_reload_success_timestamp_seconds ";
    let loaded = text.lines().find_map(|line| line.strip_prefix(loaded)).expect("a timestamp");
    assert!(loaded.parse::<f64>().expect("seconds") > 1.6e9, "{loaded} is a Unix time in seconds");
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_is_measured() {
    let text = Metrics::new().encode(&LedgerFigures::default(), LogFigures::default());
    for name in ["process_resident_memory_bytes", "process_threads", "process_open_fds"] {
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        let value: f64 = value.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number");
        assert!(value > 0.0, "{name} is {value}");
    }
}

#[test]
fn a_series_is_made_once_and_found_again() {
    let metrics = Metrics::new();
    let first = metrics.new_series("/a", "m", "u");
    assert!(Arc::ptr_eq(&first, &metrics.new_series("/a", "m", "u")), "the same series");
    for (route, model, upstream) in [("/b", "m", "u"), ("/a", "n", "u"), ("/a", "m", "v")] {
        let other = metrics.new_series(route, model, upstream);
        assert!(!Arc::ptr_eq(&first, &other), "{route} {model} {upstream} is another series");
    }
}
