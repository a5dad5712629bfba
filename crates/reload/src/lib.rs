//! Putting the files in force while the gateway runs: one way for signals, the admin API and the
//! watch on the files, so that each of them shows in the same metrics and the same log.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use tollgate_config::{self as config, ConfigHandle, Diagnostic, ReloadSummary, Trigger};
use tollgate_telemetry::metrics::Metrics;

mod watch;

pub use watch::watch;

/// Attempt to load the files.
#[derive(Debug)]
pub struct ReloadAttempt {
    /// Changes of the reload, or all errors in the files.
    pub result: Result<ReloadSummary, Vec<Diagnostic>>,
    /// The hash of the configuration in force after the attempt.
    pub running: String,
}

/// Reloads the files, or keeps the active configuration and reports why.
pub async fn apply(
    config: &Arc<ConfigHandle>,
    metrics: &Arc<Metrics>,
    by: Trigger,
) -> ReloadAttempt {
    let (config, metrics) = (Arc::clone(config), Arc::clone(metrics));
    off_the_runtime(move || report_reload(&config, &metrics, by, config.reload())).await
}

/// Reloads the files if their content has changed since the last attempt.
pub(crate) async fn apply_if_changed(config: &Arc<ConfigHandle>, metrics: &Arc<Metrics>) {
    let (config, metrics) = (Arc::clone(config), Arc::clone(metrics));
    off_the_runtime(move || {
        // Files that have not changed since they failed are not reported again every few seconds.
        if let Some(result) = config.reload_if_changed() {
            report_reload(&config, &metrics, Trigger::Watch, result);
        }
    })
    .await;
}

/// Reports the result of [`apply`] without any change.
pub async fn try_out(config: &Arc<ConfigHandle>) -> ReloadAttempt {
    let config = Arc::clone(config);
    off_the_runtime(move || ReloadAttempt {
        result: config.try_out(),
        running: config.load().hash.clone(),
    })
    .await
}

/// A thousand models take tens of milliseconds to compile, which belong to no request's thread.
async fn off_the_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // It runs to its end, or its thread has panicked and this one has nothing to go on with.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Reports the outcome of a reload to metrics and log.
fn report_reload(
    config: &ConfigHandle,
    metrics: &Metrics,
    by: Trigger,
    result: Result<ReloadSummary, Vec<Diagnostic>>,
) -> ReloadAttempt {
    metrics.config_reloaded(result.is_ok());
    config.remember(by, &result);
    let running = config.load().hash.clone();
    match &result {
        Ok(reloaded) => {
            for warning in &reloaded.warnings {
                log::warn!("{}", warning.render());
            }
            for field in &reloaded.restart_only {
                log::warn!("configuration: {field} has changed and takes effect after a restart");
            }
            log::info!("configuration reloaded: {running}");
        }
        Err(errors) => {
            for error in errors {
                log::error!("{}", error.render());
            }
            log::error!("configuration not reloaded: {running} stays in force");
        }
    }
    ReloadAttempt { result, running }
}

impl ReloadAttempt {
    /// True if the files are valid.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        self.result.is_ok()
    }

    /// The attempt for programs: what `tollgate check --format json` says of the files, whether
    /// they are in force, what is in force, and which of their fields wait for a restart.
    #[must_use]
    pub fn document(&self) -> ReloadReport {
        let (hash, diagnostics, restart_only) = match &self.result {
            Ok(reloaded) => {
                (Some(reloaded.hash.as_str()), &reloaded.warnings, reloaded.restart_only.as_slice())
            }
            Err(errors) => (None, errors, &[][..]),
        };
        ReloadReport {
            report: config::report(hash, diagnostics),
            in_force: hash == Some(self.running.as_str()),
            running: self.running.clone(),
            restart_only: restart_only.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The outcome of an attempt, for programs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Reload")]
pub struct ReloadReport {
    /// Output of `tollgate check --format json` for the files.
    #[serde(flatten)]
    pub report: config::DiagnosticReport,
    /// True if these files are the current configuration.
    pub in_force: bool,
    /// Hash of the active configuration.
    pub running: String,
    /// Changed fields that take effect only after a restart.
    pub restart_only: Vec<String>,
}
