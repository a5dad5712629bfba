//! Counters that are there before their first event.
//!
//! Prometheus takes the increase of a series from its first sample on: of one that begins at 1 the first
//! event is never seen, and an alert on any increase keeps silent. So every series that the
//! configuration allows for begins at zero, with the first scrape after a start or a reload.

use super::{Metrics, series};
use tollgate_config::snapshot::{CredentialKind, Model, Snapshot};
use tollgate_credentials::RefreshOutcome;
use tollgate_limits::{Limit, Scope};
use tollgate_protocols::Contradiction;
use tollgate_protocols::task::TaskState;

/// Labels of a request that found no free slot.
const UNAVAILABLE: [&str; 2] = ["5xx", "ServiceUnavailable"];

/// True if requests to the model start tasks.
fn makes_tasks(model: &Model) -> bool {
    model.operations.iter().any(|operation| operation.info().is_task)
}

impl Metrics {
    /// Creates the series of a configuration at zero.
    pub fn begin(&self, config: &Snapshot, outcomes: &[&str]) {
        let mut begun = self.begun.lock();
        if *begun == config.hash {
            return;
        }
        begun.clone_from(&config.hash);
        for route in &config.routes {
            let [status, code] = UNAVAILABLE;
            self.requests.with_label_values(&[route.path.as_str(), "", "", status, code]).inc_by(0);
        }
        // A limit of a key or an account can refuse a request before its model is found.
        for limit in Limit::ALL {
            for scope in Scope::ALL {
                let labels = ["", limit.as_str(), scope.as_str()];
                self.rate_limited.with_label_values(&labels).inc_by(0);
            }
        }
        self.token_counts.begin();
        for upstream in config.upstreams.values() {
            self.upstreams.begin(&upstream.name, outcomes);
            self.connect_failures.begin(&upstream.name);
            for cause in Contradiction::ALL {
                let labels = [upstream.name.as_str(), cause.as_str()];
                self.contradictions.with_label_values(&labels).inc_by(0);
            }
            let signs_in = |kind: &CredentialKind| matches!(kind, CredentialKind::Auth(_));
            if upstream.credentials.iter().any(|credential| signs_in(&credential.kind)) {
                self.begin_refreshes(&upstream.name);
            }
        }
        for model in config.models.iter().filter(|model| !model.targets.is_empty()) {
            self.begin_model(model);
        }
        self.begin_unconfigured(config);
    }

    fn begin_model(&self, model: &Model) {
        let id: &str = &model.id;
        series::BillingMetrics::new(self, id);
        for counter in [&self.above_limits, &self.clamps, &self.clamps_ignored] {
            counter.with_label_values(&[id]).inc_by(0);
        }
        let rates = &model.rates;
        for (limit, is_set) in [
            (Limit::Requests, rates.requests_per_minute.is_some()),
            (Limit::Tokens, rates.tokens_per_minute.is_some()),
            (Limit::Concurrency, rates.concurrent_requests.is_some()),
        ] {
            if is_set {
                let labels = [id, limit.as_str(), Scope::Model.as_str()];
                self.rate_limited.with_label_values(&labels).inc_by(0);
            }
        }
        let makes_tasks = makes_tasks(model);
        for target in &model.targets {
            let upstream = target.upstream.name.as_str();
            self.upstreams.begin_retries(id, upstream);
            if target.cost.is_some() {
                self.begin_costs(id, upstream);
            }
            if makes_tasks {
                self.begin_tasks(id, upstream);
            }
        }
    }

    /// Creates one series of each counter without labels in this configuration, so that a rule on it finds
    /// zero instead of no data.
    fn begin_unconfigured(&self, config: &Snapshot) {
        let targets = || config.models.iter().flat_map(|model| &model.targets);
        let signs_in = |kind: &CredentialKind| matches!(kind, CredentialKind::Auth(_));
        let mut credentials = config.upstreams.values().flat_map(|upstream| &upstream.credentials);
        if !credentials.any(|credential| signs_in(&credential.kind)) {
            self.begin_refreshes("");
        }
        if !targets().any(|target| target.cost.is_some()) {
            self.begin_costs("", "");
        }
        if !config.models.iter().any(|model| makes_tasks(model)) {
            self.begin_tasks("", "");
        }
    }

    fn begin_refreshes(&self, upstream: &str) {
        for outcome in RefreshOutcome::ALL {
            self.credentials.begin(upstream, outcome);
        }
    }

    fn begin_tasks(&self, model: &str, upstream: &str) {
        for state in TaskState::ALL.iter().filter(|state| state.is_end()) {
            self.tasks.begin(model, upstream, state.as_str());
        }
    }

    fn begin_costs(&self, model: &str, upstream: &str) {
        self.costs.begin(model, upstream);
    }
}
