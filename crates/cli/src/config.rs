//! `tollgate config`: inspect and reload the configuration of a running gateway.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde::Deserialize as _;
use serde_json::Value;

use super::admin_call::AdminRequest;
use super::check::ReportFormat;
use super::exit::{self, CODES, REFUSED};
use super::operator::{AdminOptions, refusal};
use super::output::OutputOptions;
use super::sheets::{CONFIG, RELOAD};
use super::terminal::{self, outln};
use tollgate_config::{self as config, Change, Diagnostic};
use tollgate_types::printable::escaped;

/// Exit code for differences, as of `diff`.
const DIFFERENT: u8 = 1;
/// Exit code for errors, as of `diff`.
const TROUBLE: u8 = 2;

/// Inspect and reload the configuration of a running gateway.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Show the active configuration as written; secrets are replaced by fingerprints.
    #[command(after_help = format!("\
Examples:
  tollgate config show
  tollgate config show --quiet
  tollgate config show --json | jq .config.upstreams

{CODES}"))]
    Show(RunningConfig),
    /// Compare the files with the active configuration. Exits with 0 if equal, 1 if different, 2 on
    /// errors.
    #[command(after_help = "\
Examples:
  tollgate config diff
  tollgate config diff --format json
  tollgate config diff --admin 10.0.0.11:9090 --token-file admin-token")]
    Diff(Diff),
    /// Reload the gateway's files, atomically.
    #[command(after_help = format!("\
Examples:
  tollgate config reload

{CODES}"))]
    Reload(RunningConfig),
    /// Show what a reload would change, without changing it. `tollgate check` checks files without a
    /// gateway.
    #[command(after_help = format!("\
Examples:
  tollgate config check

{CODES}"))]
    Check(RunningConfig),
}

#[derive(Debug, Args)]
pub(super) struct RunningConfig {
    #[command(flatten)]
    output: OutputOptions,
}

#[derive(Debug, Args)]
pub(super) struct Diff {
    #[command(flatten)]
    operator: AdminOptions,
    /// Output format: for people or for programs.
    #[arg(long, value_enum, default_value_t = ReportFormat::Human)]
    format: ReportFormat,
}

impl ConfigCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Show(running) => running.show(),
            Self::Diff(diff) => Ok(diff.run().unwrap_or_else(|error| {
                // The reason as ever, but with the code of `diff`.
                exit::say(&error);
                ExitCode::from(TROUBLE)
            })),
            Self::Reload(running) => running.reload("/admin/v1/reload"),
            Self::Check(running) => running.reload("/admin/v1/reload?dry_run=true"),
        }
    }
}

impl RunningConfig {
    fn show(&self) -> anyhow::Result<ExitCode> {
        let document = self.output.operator.ask(&AdminRequest::get("/admin/v1/config"))?;
        if self.output.json || self.output.quiet {
            self.output.print(&document, &CONFIG)?;
        } else {
            let mut out = terminal::out();
            serde_json::to_writer_pretty(&mut out, &document.value)?;
            writeln!(out)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Reload; errors of the files are printed as by `tollgate check`.
    fn reload(&self, path: &str) -> anyhow::Result<ExitCode> {
        // Invalid files are a 422 with a document of their own, not an error of the API.
        let (document, status) = self.output.operator.ask_any(&AdminRequest::post(path))?;
        if !document.value["ok"].is_boolean() {
            return Err(refusal(status, &document));
        }
        if !self.output.json {
            let found = document.value["diagnostics"].as_array().into_iter().flatten();
            let found = found.filter_map(|found| Diagnostic::deserialize(found).ok());
            terminal::diagnostics(&found.collect::<Vec<_>>());
        }
        self.output.print(&document, &RELOAD)?;
        let is_in_order = document.value["ok"] == true;
        Ok(if is_in_order { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) })
    }
}

impl Diff {
    fn run(self) -> anyhow::Result<ExitCode> {
        let files = &self.operator.files;
        let (hash, files) = match config::describe(&files.routes(), &files.models()) {
            Ok(described) => described,
            Err(errors) => {
                terminal::diagnostics(&errors);
                bail!("the files are not in order");
            }
        };
        let (running, token) = self.operator.get_with_token("/admin/v1/config")?;
        // The gateway makes its fingerprints with the token that it was shown.
        let changes = config::changes(&running["config"], &files.shown(&token));
        match self.format {
            ReportFormat::Human => print_human(&changes),
            ReportFormat::Json => {
                let report = serde_json::json!({
                    "different": !changes.is_empty(),
                    "running": running["hash"],
                    "files": hash,
                    "changes": changes,
                });
                outln!("{}", serde_json::to_string_pretty(&report)?);
            }
        }
        Ok(if changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
    }
}

/// Print one line per change: `+` added, `-` removed, `~` changed.
fn print_human(changes: &[Change]) {
    for Change { field, running, files, restart_only } in changes {
        let line = match (running, files) {
            (None, Some(files)) => format!("+ {field}: {files}"),
            (Some(running), None) => format!("- {field}: {running}"),
            (running, files) => {
                let shown = |value: &Option<Value>| value.as_ref().map(Value::to_string);
                let (running, files) = (shown(running), shown(files));
                format!(
                    "~ {field}: {} → {}",
                    running.unwrap_or_default(),
                    files.unwrap_or_default()
                )
            }
        };
        outln!("{}{}", escaped(&line), if *restart_only { "   (at a restart)" } else { "" });
    }
    match changes.len() {
        0 => outln!("the files are what runs"),
        1 => outln!("1 difference"),
        count => outln!("{count} differences"),
    }
}
