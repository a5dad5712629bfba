//! A real Prometheus with the shipped rules scrapes a gateway under load:
//! `cargo test --test proofs -- --ignored monitored::`.

mod load;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::harness::ask;
use crate::harness::expressions::{Panel, dashboard, metrics_in, rules};
use crate::harness::poll_async;
use crate::harness::prometheus::{Prometheus, promtool};
use load::Load;

/// Time until every rule and panel must show a value.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file)
}

/// One load shows the scrape, the rules, the dashboard and an alert.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "loads a gateway for a minute"]
async fn a_running_gateway_is_seen_as_it_is() {
    let load = Load::start();
    let prometheus = Prometheus::start(load.admin(), &deploy("prometheus")).await;
    // The names that have series by now: some metrics have none until something happens.
    let exposed = || {
        let request = "GET /metrics HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n";
        let scrape = String::from_utf8(ask(load.admin(), request.as_bytes()).body()).expect("text");
        let names =
            scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        (names.map(str::to_owned).collect::<BTreeSet<_>>(), scrape)
    };
    poll_async("every metric is seen", SEEN_WITHIN, async || {
        assert!(load.goes_on(), "a customer got something else than it expected");
        let missing = unseen(&prometheus, &exposed().0).await;
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    })
    .await;
    let (names, scrape) = exposed();
    promtool(&["check", "metrics"], Path::new("."), &scrape);
    assert!(names.len() > 20, "{names:?}");
    let sick = prometheus.sick_rules().await;
    assert!(sick.is_empty(), "rules that cannot be evaluated: {sick:#?}");
    load.stop();
}

/// Expressions that Prometheus does not show yet, with the reason. An expression over metrics without series
/// under this load must be answered; any other must also have a value.
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
    let removed = firing("TollgateModelUnavailable");
    expected.push(("an alert for the model that is gone".to_owned(), removed, true));
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
