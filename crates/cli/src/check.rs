//! `tollgate check`: report all errors of the two configuration files at once.

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::files::Files;
use super::terminal::{self, errln, outln};
use tollgate_config::snapshot::Snapshot;
use tollgate_config::{self as config, Diagnostic, Overrides, Severity};

/// Check routes.yaml and models.yaml, and report all errors.
#[derive(Debug, Args)]
pub(super) struct Check {
    #[command(flatten)]
    files: Files,
    /// Warn about missing environment variables and secret files instead of failing: for machines
    /// without the service's secrets.
    #[arg(long)]
    allow_unset: bool,
    /// Output format: for people (on standard error) or for programs (on standard output).
    #[arg(long, value_enum, default_value_t = ReportFormat::Human)]
    format: ReportFormat,
}

/// Output format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ReportFormat {
    Human,
    Json,
}

impl Check {
    /// Run the command: succeeds with warnings, fails with errors.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let overrides = Overrides { allow_unset: self.allow_unset, ..Overrides::default() };
        let loaded = config::load(&self.files.sources(), &overrides);
        let (snapshot, diagnostics) = match loaded {
            Ok((snapshot, warnings)) => (Some(snapshot), warnings),
            Err(errors) => (None, errors),
        };
        match self.format {
            ReportFormat::Human => print_human(snapshot.as_ref(), &diagnostics),
            ReportFormat::Json => print_json(snapshot.as_ref(), &diagnostics)?,
        }
        Ok(if snapshot.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn print_human(snapshot: Option<&Snapshot>, diagnostics: &[Diagnostic]) {
    terminal::diagnostics(diagnostics);
    let counted =
        |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let errors = counted(config::count(diagnostics, Severity::Error), "error");
    let warnings = counted(config::count(diagnostics, Severity::Warning), "warning");
    match snapshot {
        None => errln!("{errors}, {warnings}"),
        Some(snapshot) => {
            outln!("{}", snapshot.limits.told_of_bodies());
            outln!(
                "in order: {}, {}, {}; {warnings}; configuration {}",
                counted(snapshot.models.len(), "model"),
                counted(snapshot.upstreams.len(), "upstream"),
                counted(snapshot.routes.len(), "route"),
                snapshot.hash,
            );
        }
    }
}

fn print_json(snapshot: Option<&Snapshot>, diagnostics: &[Diagnostic]) -> anyhow::Result<()> {
    let report = config::report(snapshot.map(|snapshot| snapshot.hash.as_str()), diagnostics);
    outln!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
