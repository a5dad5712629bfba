//! The expressions of the rules and the dashboard, and the metrics that they name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_yaml::Value;

/// A recording rule or an alert.
pub(crate) struct Rule {
    /// Its name.
    pub(crate) name: String,
    /// Its expression.
    pub(crate) expression: String,
    /// All of it.
    pub(crate) document: Value,
}

/// The rules of a file.
pub(crate) fn rules(path: &Path) -> Vec<Rule> {
    let text = fs::read_to_string(path).expect("the rules");
    let document: Value = serde_yaml::from_str(&text).expect("YAML");
    let groups = document["groups"].as_sequence().expect("groups").clone();
    let rules =
        groups.iter().flat_map(|group| group["rules"].as_sequence().expect("rules").clone());
    rules
        .map(|rule| Rule {
            name: rule["record"].as_str().or(rule["alert"].as_str()).expect("a name").to_owned(),
            expression: rule["expr"].as_str().expect("an expression").to_owned(),
            document: rule,
        })
        .collect()
}

/// One expression of a panel.
pub(crate) struct Panel {
    /// The panel's title.
    pub(crate) title: String,
    /// The expression, as Grafana would ask it.
    pub(crate) expression: String,
    /// True if it marks events, of which there may be none.
    pub(crate) of_events: bool,
}

/// Every expression of the dashboard: of its panels, its annotations and its variables.
pub(crate) fn dashboard(path: &Path) -> Vec<Panel> {
    let text = fs::read_to_string(path).expect("the dashboard");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    let mut add = |title: &serde_json::Value, expression: &serde_json::Value, of_events: bool| {
        let title = title.as_str().expect("a title").to_owned();
        let expression = filled_in(expression.as_str().expect("an expression"));
        found.push(Panel { title, expression, of_events });
    };
    for panel in list(&document["panels"]) {
        let targets = list(&panel["targets"]);
        assert!(panel["type"] == "row" || !targets.is_empty(), "an empty panel: {panel}");
        targets.iter().for_each(|target| add(&panel["title"], &target["expr"], false));
    }
    for annotation in list(&document["annotations"]["list"]) {
        add(&annotation["name"], &annotation["expr"], true);
    }
    for variable in list(&document["templating"]["list"]) {
        if let Some(query) = variable["definition"].as_str() {
            // `label_values(SELECTOR, LABEL)` is Grafana's, not Prometheus'.
            let inner = query.strip_prefix("label_values(").and_then(|q| q.strip_suffix(')'));
            let (selector, label) = inner.and_then(|q| q.rsplit_once(", ")).expect(query);
            let expression = format!("group by ({label}) ({selector})");
            add(&variable["name"], &expression.into(), false);
        }
    }
    found
}

/// An expression with Grafana's variables filled in, "All" chosen wherever there is a choice.
fn filled_in(expression: &str) -> String {
    let filled = [
        ("$__rate_interval", "10s"),
        ("$__range", "5m"),
        ("$job", "tollgate"),
        ("$instance", ".*"),
        ("$model", ".*"),
        ("$upstream", ".*"),
    ]
    .iter()
    .fold(expression.to_owned(), |text, (name, value)| text.replace(name, value));
    assert!(!filled.contains('$'), "a variable that nothing is known of: {expression}");
    filled
}

/// The names of metrics in an expression. Those of a histogram's series are its own.
pub(crate) fn metrics_in(expression: &str) -> BTreeSet<String> {
    let mut outside = String::new();
    for (index, part) in expression.split('"').enumerate() {
        // What stands in quotes is a label's value.
        outside.push_str(if index % 2 == 0 { part } else { "\"\"" });
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = outside.split(|c| !is_name(c));
    let names = words.filter(|word| {
        ["tollgate_", "process_"].iter().any(|prefix| word.starts_with(prefix))
            || word.contains(":tollgate_")
            || *word == "up"
    });
    let of_histogram = |name: &str| {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        base.unwrap_or(name).to_owned()
    };
    names.map(of_histogram).collect()
}

/// A label matcher of a selector.
#[derive(Debug)]
pub(crate) struct Matcher {
    label: String,
    /// True if the value has to be one of the alternatives, or none of them.
    is_one: bool,
    alternatives: Vec<String>,
}

impl Matcher {
    /// True if a line of a scrape fits.
    pub(crate) fn fits(&self, line: &str) -> bool {
        let begin = format!("{}=\"", self.label);
        let found = line.split_once(&begin).and_then(|(_, rest)| rest.split('"').next());
        let found = found.unwrap_or_default();
        let fits = |alternative: &String| match alternative.split_once(".*") {
            Some((begin, end)) => found.starts_with(begin) && found.ends_with(end),
            None => found == alternative,
        };
        self.alternatives.iter().any(fits) == self.is_one
    }
}

/// The selectors of an expression that have braces: the name of each and its matchers, but for the
/// labels that Prometheus adds.
pub(crate) fn selectors(expression: &str) -> Vec<(String, Vec<Matcher>)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut found = Vec::new();
    for (at, _) in expression.match_indices('{') {
        let before = &expression[..at];
        let name = &before[before.rfind(|c| !is_name(c)).map_or(0, |last| last + 1)..];
        let inside = expression[at + 1..].split('}').next().unwrap_or_default();
        let matcher = |text: &str| {
            let (label, rest) = text.split_once(['=', '!'])?;
            let is_one = !text[label.len()..].starts_with('!');
            let value = rest.split('"').nth(1)?;
            Some(Matcher {
                label: label.trim().to_owned(),
                is_one,
                alternatives: value.split('|').map(str::to_owned).collect(),
            })
        };
        let matchers = inside.split(", ").filter_map(matcher);
        let own = matchers.filter(|one| !matches!(one.label.as_str(), "job" | "instance"));
        found.push((name.to_owned(), own.collect()));
    }
    found
}

/// The metrics of the reference: the first column of its tables.
pub(crate) fn documented(reference: &str) -> BTreeSet<String> {
    let rows = reference.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let found: BTreeSet<String> = rows
        .filter(|name| name.starts_with("tollgate_") || name.starts_with("process_"))
        .map(str::to_owned)
        .collect();
    assert!(found.len() > 20, "only {found:?} in the reference");
    found
}
