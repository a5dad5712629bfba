//! What is shipped for operators' eyes: the rules and the dashboard, by themselves, and over a real
//! Prometheus that scrapes a running gateway under load.

mod expressions;
mod load;
mod prometheus;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::harness::{Gateway, ask};
use expressions::{Panel, dashboard, documented, metrics_in, rules};
use load::Load;
use prometheus::{Prometheus, promtool};

/// How long the live test waits until everything is seen.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

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
        for said in ["summary", "description"] {
            let said = alert.document["annotations"][said].as_str();
            assert!(said.is_some_and(|said| said.len() > 10), "{name} says {said:?}");
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
    let mut known = documented(&text("docs/metrics.md"));
    let recorded = rules(&deploy("prometheus/recording.rules.yml"));
    known.extend(recorded.iter().map(|rule| rule.name.clone()));
    known.insert("up".to_owned());
    let alerts = rules(&deploy("prometheus/alerts.rules.yml"));
    let mut asked = 0;
    for rule in recorded.iter().chain(&alerts) {
        for metric in metrics_in(&rule.expression) {
            assert!(known.contains(&metric), "{} asks for {metric}: no such metric", rule.name);
            asked += 1;
        }
    }
    for Panel { title, expression, .. } in dashboard(&deploy("grafana/tollgate.json")) {
        for metric in metrics_in(&expression) {
            assert!(known.contains(&metric), "{title:?} asks for {metric}: no such metric");
            asked += 1;
        }
    }
    assert!(asked > 110, "only {asked} names were found");
}

/// What is shown has its zero before the first event: of a series that begins at 1 no increase is seen.
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
    let mut asked = 0;
    for expression in &alerts {
        for (name, matchers) in expressions::selectors(expression) {
            if !counters.contains(&name) {
                continue;
            }
            let found = samples(&name);
            let fits = |line: &String| matchers.iter().all(|matcher| matcher.fits(line));
            assert!(found.iter().any(fits), "{name}{matchers:?} in {found:#?}");
            asked += 1;
        }
    }
    assert!(asked >= 12, "only {asked} counters of alerts");
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

/// What is not on the dashboard is not looked at.
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

/// Everything at once over one load: the scrape, the rules, the dashboard and an alert.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_gateway_is_seen_as_it_is() {
    let load = Load::start();
    let prometheus = Prometheus::start(load.admin(), &deploy("prometheus")).await;
    let deadline = Instant::now() + SEEN_WITHIN;
    // The names that have series by now: some metrics have none until something happens.
    let exposed = || {
        let request = "GET /metrics HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n";
        let scrape = String::from_utf8(ask(load.admin(), request.as_bytes()).body()).expect("text");
        let names =
            scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        (names.map(str::to_owned).collect::<BTreeSet<_>>(), scrape)
    };
    loop {
        let (names, _) = exposed();
        let missing = unseen(&prometheus, &names).await;
        if missing.is_empty() {
            break;
        }
        assert!(load.goes_on(), "a customer got something else than it expected");
        assert!(Instant::now() < deadline, "not seen within {SEEN_WITHIN:?}: {missing:#?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let (names, scrape) = exposed();
    promtool(&["check", "metrics"], Path::new("."), &scrape);
    assert!(names.len() > 20, "{names:?}");
    let sick = prometheus.sick_rules().await;
    assert!(sick.is_empty(), "rules that cannot be evaluated: {sick:#?}");
    load.stop();
}

/// What Prometheus does not show yet, with the reason. An expression over metrics that have no series
/// under this load must be answered; any other must have a value too.
async fn unseen(prometheus: &Prometheus, exposed: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut unseen = BTreeMap::new();
    let mut expected = Vec::new();
    for rule in rules(&deploy("prometheus/recording.rules.yml")) {
        // The rule is asked for by its name: what matters is that Prometheus has recorded it.
        let has_series = metrics_in(&rule.expression).iter().all(|name| exposed.contains(name));
        expected.push((rule.name.clone(), rule.name, has_series));
    }
    let recorded_now = expected.iter().filter(|(_, _, has_series)| *has_series).count();
    let panels = dashboard(&deploy("grafana/tollgate.json"));
    for Panel { title, expression, of_events } in panels {
        let is_exposed = |name: &String| exposed.contains(name) || name == "up";
        let has_series = !of_events && metrics_in(&expression).iter().all(is_exposed);
        expected.push((format!("{title}: {expression}"), expression, has_series));
    }
    let with_values = expected.iter().filter(|(_, _, has_series)| *has_series).count();
    if recorded_now < 10 || with_values - recorded_now < 45 {
        let reason = format!("{recorded_now} rules and {with_values} expressions have series");
        unseen.insert("enough of it all".to_owned(), reason);
    }
    let firing = |alert: &str| format!("ALERTS{{alertname=\"{alert}\", alertstate=\"firing\"}}");
    expected.push(("the target".to_owned(), "up{job=\"tollgate\"} == 1".to_owned(), true));
    let burning = firing("TollgateErrorBudgetBurnsFast");
    expected.push(("an alert for the failures".to_owned(), burning, true));
    let estimates = firing("TollgateBillsEstimates");
    expected.push(("an alert for the estimates".to_owned(), estimates, true));
    let gone = firing("TollgateModelUnavailable");
    expected.push(("an alert for the model that is gone".to_owned(), gone, true));
    let limited = "sum(tollgate_rate_limited_total{model=\"limited\", scope=\"model\"}) > 0";
    expected.push(("a limit that is reached".to_owned(), limited.to_owned(), true));
    for (what, expression, has_series) in expected {
        match prometheus.values(&expression).await {
            Err(error) => drop(unseen.insert(what, error)),
            Ok(values) if has_series && values.iter().all(|value| value.is_nan()) => {
                unseen.insert(what, format!("no value: {values:?}"));
            }
            Ok(_) => {}
        }
    }
    unseen
}
