//! `tollgate config`: the configuration of a running gateway.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::check::Format;
use super::operator::Operator;
use super::serve;
use crate::config::{self, Change};

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
    /// Say what the files would change of what runs: exits with 0 for nothing, 1 for something, 2
    /// when that cannot be said.
    Diff(Diff),
}

#[derive(Debug, Args)]
struct Diff {
    #[command(flatten)]
    operator: Operator,
    /// For people or for programs.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

impl ConfigArgs {
    /// Runs the command.
    pub(super) fn run(self) -> ExitCode {
        let ConfigCommand::Diff(diff) = self.command;
        diff.run().unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            ExitCode::from(TROUBLE)
        })
    }
}

impl Diff {
    fn run(self) -> anyhow::Result<ExitCode> {
        let files = &self.operator.files;
        let (hash, files) = match config::describe(&files.routes, &files.models) {
            Ok(described) => described,
            Err(errors) => {
                serve::print(&errors);
                bail!("the files are not in order");
            }
        };
        let running = self.operator.get("/admin/v1/config")?;
        let changes = config::changes(&running["config"], &files);
        match self.format {
            Format::Human => print_human(&changes),
            Format::Json => {
                let report = serde_json::json!({
                    "different": !changes.is_empty(),
                    "running": running["hash"],
                    "files": hash,
                    "changes": changes,
                });
                println!("{}", serde_json::to_string_pretty(&report)?);
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
        println!("{line}{}", if *restart_only { "   (at a restart)" } else { "" });
    }
    match changes.len() {
        0 => println!("the files are what runs"),
        1 => println!("1 difference"),
        count => println!("{count} differences"),
    }
}
