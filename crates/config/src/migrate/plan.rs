//! The result of a migration before it is written: upstreams and models.

use std::collections::{BTreeMap, HashMap, HashSet};

use tollgate_money::price::Unit;
use tollgate_protocols::Operation;

/// Both files to be.
#[derive(Debug, Default)]
pub(super) struct MigrationPlan {
    pub(super) upstreams: Vec<PlannedUpstream>,
    added: AddedUpstreams,
    pub(super) models: Vec<PlannedModel>,
    /// Token of the admin API, as written.
    pub(super) admin_token: Option<String>,
    /// Tries for one request.
    pub(super) tries_max: Option<u64>,
    /// Number of failures after which a target gets no calls.
    pub(super) failures: Option<u64>,
    /// Time for which a circuit stays open.
    pub(super) open: Option<String>,
    /// Maximum number of concurrent requests of all customers.
    pub(super) in_flight_max: Option<u64>,
}

/// The upstreams of a plan by what they are, and their names.
#[derive(Debug, Default)]
struct AddedUpstreams {
    /// Names of upstreams by their other settings.
    by_content: HashMap<PlannedUpstream, String>,
    names: HashSet<String>,
    /// The last number behind a name, by what was to be the name.
    numbers: HashMap<String, usize>,
}

/// A provider's API with one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PlannedUpstream {
    pub(super) name: String,
    pub(super) protocol: &'static str,
    pub(super) base_url: String,
    /// Credential as written: a variable.
    pub(super) credential: Option<String>,
    /// Signing in, in place of a credential.
    pub(super) auth: Option<PlannedAuth>,
    /// Headers of the operator's own, and their values as they are written.
    pub(super) headers: Vec<(String, String)>,
    /// The longest silence of the upstream, as a period.
    pub(super) read_timeout: Option<String>,
}

/// One way to sign in to an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PlannedAuth {
    /// Its field below `auth`.
    pub(super) kind: &'static str,
    /// The fields below that, and their values in YAML.
    pub(super) fields: Vec<(&'static str, String)>,
}

/// One place where a model is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedTarget {
    pub(super) upstream: String,
    pub(super) model: String,
    pub(super) priority: u64,
    pub(super) weight: u64,
}

/// A model as customers name it.
#[derive(Clone, Debug, Default)]
pub(super) struct PlannedModel {
    pub(super) id: String,
    pub(super) operations: Vec<Operation>,
    pub(super) targets: Vec<PlannedTarget>,
    /// The models that serve a request when no target can, in their order.
    pub(super) fallbacks: Vec<String>,
    /// Price fields and dollars, in our order.
    pub(super) prices: Vec<(Unit, String)>,
    /// Entries of `prices_when` as they are written.
    pub(super) prices_when: Vec<String>,
    /// True for a model that costs nothing.
    pub(super) free: bool,
    /// Limits as they are written.
    pub(super) limits: Vec<(String, String)>,
    /// Rate limits of all customers together.
    pub(super) rates: BTreeMap<&'static str, u64>,
    /// Comments for the reader.
    pub(super) comments: Vec<String>,
    /// Fields that a person has to fill in; while there are any, the model is a comment.
    pub(super) missing: Vec<&'static str>,
}

impl MigrationPlan {
    /// Name of the upstream with these settings, which is added with `name` if there is none.
    pub(super) fn upstream(&mut self, upstream: PlannedUpstream) -> String {
        let unnamed = PlannedUpstream { name: String::new(), ..upstream.clone() };
        if let Some(name) = self.added.by_content.get(&unnamed) {
            return name.clone();
        }
        // The numbers below the last one were taken by those before.
        let number = self.added.numbers.entry(upstream.name.clone()).or_insert(0);
        let name = loop {
            *number = number.saturating_add(1);
            let name = match *number {
                1 => upstream.name.clone(),
                number => format!("{}-{number}", upstream.name),
            };
            if self.added.names.insert(name.clone()) {
                break name;
            }
        };
        self.added.by_content.insert(unnamed, name.clone());
        self.upstreams.push(PlannedUpstream { name: name.clone(), ..upstream });
        name
    }
}

/// Writes a text as YAML: plain if it is a simple word, else quoted.
pub(super) fn quoted(text: &str) -> String {
    // A colon is text where no space comes behind it.
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./@:".contains(letter);
    let is_word = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(is_plain)
        && !text.ends_with(':')
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_ascii_lowercase().as_str());
    if is_word { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}
