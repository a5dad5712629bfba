//! `tollgate config`: the configuration of a running gateway.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde::Deserialize as _;
use serde_json::Value;

use super::admin_call::AdminRequest;
use super::asked::OutputOptions;
use super::check::ReportFormat;
use super::exit::{self, CODES, REFUSED};
use super::operator::{AdminOptions, refusal};
use super::sheets::{CONFIG, RELOAD};
use super::terminal::{self, outln};
use tollgate_config::{self as config, Change, Diagnostic};
use tollgate_types::printable::escaped;

/// The exit code when something differs; that of `diff`.
const DIFFERENT: u8 = 1;
/// The exit code when nothing can be said; that of `diff`.
const TROUBLE: u8 = 2;

/// The configuration of a running gateway.
#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Show what is in force, as it was typed; secrets are fingerprints.
    #[command(after_help = format!("\
Examples:
  tollgate config show
  tollgate config show --quiet
  tollgate config show --json | jq .config.upstreams

{CODES}"))]
    Show(RunningConfig),
    /// Say what the files would change of what runs: exits with 0 for nothing, 1 for something, 2
    /// when that cannot be said.
    #[command(after_help = "\
Examples:
  tollgate config diff
  tollgate config diff --format json
  tollgate config diff --admin 10.0.0.11:9090 --token-file admin-token")]
    Diff(Diff),
    /// Have the gateway read its files again and put them in force: whole, or not at all.
    #[command(after_help = format!("\
Examples:
  tollgate config reload

{CODES}"))]
    Reload(RunningConfig),
    /// Have the gateway say what a reload would do, and change nothing. `tollgate check` looks at
    /// files without a gateway.
    #[command(after_help = format!("\
Examples:
  tollgate config check

{CODES}"))]
    Check(RunningConfig),
}

#[derive(Debug, Args)]
struct RunningConfig {
    #[command(flatten)]
    asked: OutputOptions,
}

#[derive(Debug, Args)]
struct Diff {
    #[command(flatten)]
    operator: AdminOptions,
    /// For people or for programs.
    #[arg(long, value_enum, default_value_t = ReportFormat::Human)]
    format: ReportFormat,
}

impl ConfigArgs {
    /// Runs the command.
    ///
    /// # Errors
    /// What the gateway says, or that it says nothing.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            ConfigCommand::Show(running) => running.show(),
            ConfigCommand::Diff(diff) => Ok(diff.run().unwrap_or_else(|error| {
                // The reason as ever, but with the code of `diff`.
                exit::say(&error);
                ExitCode::from(TROUBLE)
            })),
            ConfigCommand::Reload(running) => running.reload("/admin/v1/reload"),
            ConfigCommand::Check(running) => running.reload("/admin/v1/reload?dry_run=true"),
        }
    }
}

impl RunningConfig {
    fn show(&self) -> anyhow::Result<ExitCode> {
        let document = self.asked.operator.ask(&AdminRequest::get("/admin/v1/config"))?;
        if self.asked.json || self.asked.quiet {
            self.asked.print(&document, &CONFIG)?;
        } else {
            let mut out = terminal::out();
            serde_json::to_writer_pretty(&mut out, &document.value)?;
            writeln!(out)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Files that are not in order are shown as `tollgate check` shows them.
    fn reload(&self, path: &str) -> anyhow::Result<ExitCode> {
        let (document, status) = self.asked.operator.ask_any(&AdminRequest::post(path))?;
        if !document.value["ok"].is_boolean() {
            return Err(refusal(status, &document));
        }
        if !self.asked.json {
            let found = document.value["diagnostics"].as_array().into_iter().flatten();
            let found = found.filter_map(|found| Diagnostic::deserialize(found).ok());
            terminal::diagnostics(&found.collect::<Vec<_>>());
        }
        self.asked.print(&document, &RELOAD)?;
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

/// One line a change: `+` is added, `-` removed, `~` changed.
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
