//! `tollgate config`: the configuration of a running gateway.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;

use super::{admin_call, listen, serve};
use crate::config::{self, Change, Overrides, Sources};
use crate::secret::Secret;

/// How long the gateway may take to say what is in force.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
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
    /// Listeners, upstreams, routes, limits and the store.
    #[arg(long, default_value = "routes.yaml", value_name = "FILE")]
    routes: PathBuf,
    /// Models, their targets and prices.
    #[arg(long, default_value = "models.yaml", value_name = "FILE")]
    models: PathBuf,
    /// Address of the running gateway's admin API. Default: that of the files.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// The file with the admin API's token. Default: the token of the files, or the one that the
    /// gateway keeps in its data directory.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// For people or for programs.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Human,
    Json,
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
        let (hash, files) = match config::describe(&self.routes, &self.models) {
            Ok(described) => described,
            Err(errors) => {
                serve::print(&errors);
                bail!("the files are not in order");
            }
        };
        let (running_hash, running) = self.running()?;
        let changes = config::changes(&running, &files);
        match self.format {
            Format::Human => print_human(&changes),
            Format::Json => {
                let report = serde_json::json!({
                    "different": !changes.is_empty(),
                    "running": running_hash,
                    "files": hash,
                    "changes": changes,
                });
                println!("{}", serde_json::to_string_pretty(&report)?);
            }
        }
        Ok(if changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
    }

    /// The hash of what runs, and its document.
    fn running(&self) -> anyhow::Result<(Value, Value)> {
        let (address, token) = self.access()?;
        let address = listen::callable(address);
        let answer = admin_call::get(address, "/admin/v1/config", Some(&token), ANSWER_TIMEOUT)
            .with_context(|| format!("no answer from {address}"))?;
        if answer.status != 200 {
            let said = String::from_utf8_lossy(&answer.body);
            bail!("{address} answered {}: {}", answer.status, said.trim());
        }
        let mut document: Value = serde_json::from_slice(&answer.body)
            .with_context(|| format!("{address} answered something else than JSON"))?;
        Ok((document["hash"].take(), document["config"].take()))
    }

    /// Where the gateway is, and what it asks for: as told, or else as the files say.
    fn access(&self) -> anyhow::Result<(SocketAddr, Secret)> {
        let read = |path: &PathBuf| {
            let token = std::fs::read_to_string(path);
            let token = token.with_context(|| format!("cannot read {}", path.display()))?;
            anyhow::Ok(Secret::new(token.trim().to_owned()))
        };
        if let (Some(address), Some(file)) = (self.admin, &self.token_file) {
            return Ok((address, read(file)?));
        }
        let sources = Sources::Files { routes: self.routes.clone(), models: self.models.clone() };
        let snapshot = match config::load(&sources, &Overrides::default()) {
            Ok((snapshot, _)) => snapshot,
            Err(errors) => {
                serve::print(&errors);
                bail!("the files do not say where the gateway is: use --admin and --token-file");
            }
        };
        let token = match (&self.token_file, snapshot.admin.token) {
            (Some(file), _) => read(file)?,
            (None, Some(token)) => token,
            (None, None) => read(&snapshot.store.data_dir.join("admin-token"))?,
        };
        Ok((self.admin.unwrap_or(snapshot.admin.address), token))
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
