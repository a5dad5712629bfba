//! Metrics of the configuration.

use prometheus::{Gauge, IntCounterVec, IntGauge, Registry};

use super::register::{gauge, int_counters, int_gauge};
use super::unix_seconds;

/// Outcomes of a reload.
const OUTCOMES: [&str; 2] = ["ok", "refused"];

pub(super) struct ConfigurationFigures {
    last_ok: IntGauge,
    last_ok_time: Gauge,
    reloads: IntCounterVec,
}

impl ConfigurationFigures {
    pub(super) fn new(r: &Registry) -> Self {
        let reloads = int_counters(
            r,
            "tollgate_config_reloads_total",
            "Attempts to replace the running configuration.",
            &["outcome"],
        );
        for outcome in OUTCOMES {
            // A rate needs the zero that comes before the first.
            reloads.with_label_values(&[outcome]).inc_by(0);
        }
        Self {
            last_ok: int_gauge(
                r,
                "tollgate_config_last_reload_successful",
                "1 when the last attempt to load the configuration succeeded, else 0.",
            ),
            last_ok_time: gauge(
                r,
                "tollgate_config_last_reload_success_timestamp_seconds",
                "When the running configuration was loaded (Unix time).",
            ),
            reloads,
        }
    }

    /// The configuration that the process starts with is in force.
    pub(super) fn loaded(&self) {
        self.last_ok.set(1);
        self.last_ok_time.set(unix_seconds());
    }

    /// An attempt to replace it has ended.
    pub(super) fn reloaded(&self, succeeded: bool) {
        let [ok, refused] = OUTCOMES;
        self.reloads.with_label_values(&[if succeeded { ok } else { refused }]).inc();
        if succeeded {
            self.loaded();
        } else {
            self.last_ok.set(0);
        }
    }
}
