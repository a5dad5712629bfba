//! The shipped Prometheus rules and the dashboard, checked by themselves. `tests/proofs/monitored.rs` runs
//! them over a gateway under load.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::Gateway;
use crate::harness::expressions::{self, Panel, dashboard, documented, metrics_in, rules};
use crate::harness::prometheus::promtool;

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file)
}

fn text(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_rules_do_what_their_own_tests_say() {
    let directory = deploy("prometheus");
    let checked = promtool(&["check", "config", "prometheus.yml"], &directory, "");
    assert!(checked.contains("15 rules found") && checked.contains("37 rules found"), "{checked}");
    promtool(&["test", "rules", "rules.test.yml"], &directory, "");
}

#[test]
fn every_alert_is_tested_and_has_a_section_in_the_runbook() {
    let (tests, runbook) = (text("deploy/prometheus/rules.test.yml"), text("docs/operations.md"));
    let sections: BTreeSet<String> = runbook
        .lines()
        .filter_map(|line| Some(line.strip_prefix("### ")?.trim().to_lowercase()))
        .collect();
    let alerts = rules(&deploy("prometheus/alerts.rules.yml"));
    for alert in &alerts {
        let name = &alert.name;
        let severity = alert.document["labels"]["severity"].as_str();
        assert!(matches!(severity, Some("critical" | "warning" | "info")), "{name}: {severity:?}");
        for message in ["summary", "description"] {
            let message = alert.document["annotations"][message].as_str();
            assert!(message.is_some_and(|message| message.len() > 10), "{name} says {message:?}");
        }
        let url = alert.document["annotations"]["runbook_url"].as_str().unwrap_or_default();
        let section = url.strip_prefix("docs/operations.md#").unwrap_or_default();
        assert!(sections.contains(section), "{name}: {url} leads nowhere");
        assert_eq!(section, name.to_lowercase(), "{name} has a section of its own");
        let firing = format!("ALERTS{{alertname=\"{name}\", alertstate=\"firing\", ");
        assert!(tests.contains(&firing), "no test in rules.test.yml has {name} fire");
    }
    assert_eq!(alerts.len(), 37, "alerts");
}

/// A rule or panel over a name that does not exist is silent for ever.
#[test]
fn rules_and_dashboard_ask_for_metrics_that_there_are() {
    let mut existing = documented(&text("docs/metrics.md"));
    let recorded = rules(&deploy("prometheus/recording.rules.yml"));
    existing.extend(recorded.iter().map(|rule| rule.name.clone()));
    existing.insert("up".to_owned());
    let alerts = rules(&deploy("prometheus/alerts.rules.yml"));
    let mut request_count = 0;
    for rule in recorded.iter().chain(&alerts) {
        for metric in metrics_in(&rule.expression) {
            assert!(existing.contains(&metric), "{} asks for {metric}: no such metric", rule.name);
            request_count += 1;
        }
    }
    for Panel { title, expression, .. } in dashboard(&deploy("grafana/tollgate.json")) {
        for metric in metrics_in(&expression) {
            assert!(existing.contains(&metric), "{title:?} asks for {metric}: no such metric");
            request_count += 1;
        }
    }
    assert!(request_count > 110, "only {request_count} names were found");
}

/// Every shown counter starts at zero: a series that begins at 1 shows no increase.
#[test]
fn every_counter_of_rules_and_dashboard_is_there_in_a_fresh_process() {
    let gateway = counted_from_the_start();
    let scrape = gateway.metrics();
    let rules_of = |file: &str| rules(&deploy(file)).into_iter().map(|rule| rule.expression);
    let alerts: Vec<String> = rules_of("prometheus/alerts.rules.yml").collect();
    let recorded = rules_of("prometheus/recording.rules.yml");
    let panels = dashboard(&deploy("grafana/tollgate.json")).into_iter();
    let shown = recorded.chain(panels.map(|panel| panel.expression));
    let mut counters = BTreeSet::new();
    for expression in alerts.iter().cloned().chain(shown) {
        let named = metrics_in(&expression);
        // Those of a fleet are there in a node of one.
        let is_counter = |name: &String| {
            name.starts_with("tollgate_") && name.ends_with("_total") && !name.contains("_fleet_")
        };
        counters.extend(named.into_iter().filter(is_counter));
    }
    assert!(counters.len() >= 25, "{counters:?}");
    let samples = |name: &str| {
        let begins =
            |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        scrape.lines().filter(begins).map(str::to_owned).collect::<Vec<_>>()
    };
    for counter in &counters {
        assert!(!samples(counter).is_empty(), "{counter} is not there yet");
    }
    // An alert asks for some of them only: of those, too, there is at least one.
    let mut request_count = 0;
    for expression in &alerts {
        for (name, matchers) in expressions::selectors(expression) {
            if !counters.contains(&name) {
                continue;
            }
            let found = samples(&name);
            let fits = |line: &String| matchers.iter().all(|matcher| matcher.fits(line));
            assert!(found.iter().any(fits), "{name}{matchers:?} in {found:#?}");
            request_count += 1;
        }
    }
    assert!(request_count >= 12, "only {request_count} counters of alerts");
}

/// A gateway whose model has a limit and a cost, and that signs in nowhere and makes no tasks.
fn counted_from_the_start() -> Gateway {
    let models = "models:
  m:
    operations: [chat]
    targets:
      - upstream: here
        cost: { input_per_1m_tokens: 1, output_per_1m_tokens: 1 }
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 2 }
    limits: { context_tokens_max: 1000, output_tokens_max: 10 }
    rate_limits: { requests_per_minute: 60 }
";
    let upstreams = "  here: { protocol: openai, base_url: http://127.0.0.1:1/v1 }\n";
    Gateway::serving(upstreams, models)
}

/// Metrics without a panel are not watched.
#[test]
fn the_dashboard_shows_every_documented_metric() {
    let shown: BTreeSet<String> = dashboard(&deploy("grafana/tollgate.json"))
        .iter()
        .flat_map(|panel| metrics_in(&panel.expression))
        .collect();
    for metric in documented(&text("docs/metrics.md")) {
        assert!(shown.contains(&metric), "{metric} is on no panel");
    }
}

#[test]
fn every_expression_of_the_dashboard_can_be_parsed() {
    let panels = dashboard(&deploy("grafana/tollgate.json"));
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (index, panel) in panels.iter().enumerate() {
        let expression = serde_json::to_string(&panel.expression).expect("JSON");
        rules.push_str(&format!("      - record: panel:{index}\n        expr: {expression}\n"));
    }
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("dashboard.yml"), rules).expect("written");
    let checked = promtool(&["check", "rules", "dashboard.yml"], directory.path(), "");
    assert!(checked.contains(&format!("{} rules found", panels.len())), "{checked}");
    assert!(panels.len() > 60, "only {} expressions", panels.len());
}
