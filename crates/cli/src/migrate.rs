//! `tollgate migrate`: convert other gateways' configurations, update a fleet's schema, and move
//! ledgers.

mod database;
mod ledger;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::exit::{CODES, PARTLY};
use super::terminal::{self, errln};
use tollgate_config::{self as config, MigratedConfig, Severity};

/// Convert another gateway's configuration, update the schema of a fleet's database, or move a ledger
/// into it.
#[derive(Debug, Subcommand)]
pub(super) enum MigrateCommand {
    /// Convert the config.yaml of LiteLLM's proxy to routes.yaml and models.yaml. Settings without an
    /// equivalent are listed on standard error, with position and reason.
    #[command(after_help = format!("\
Examples:
  tollgate migrate litellm config.yaml
  tollgate migrate litellm config.yaml --out tollgate
  tollgate check --routes tollgate/routes.yaml --models tollgate/models.yaml

{CODES} 6 it is done, but something was left out."))]
    Litellm(Litellm),
    Up(database::DatabaseUp),
    Status(database::DatabaseStatus),
    Ledger(ledger::MoveLedger),
}

#[derive(Args, Debug)]
pub(super) struct Litellm {
    /// LiteLLM's configuration file.
    config: PathBuf,
    /// Output directory, created if missing; existing files are not replaced. Default: print both files.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl MigrateCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Litellm(command) => command.run(),
            Self::Up(command) => command.run(),
            Self::Status(command) => command.run(),
            Self::Ledger(command) => command.run(),
        }
    }
}

impl Litellm {
    fn run(self) -> anyhow::Result<ExitCode> {
        let Self { config, out } = self;
        let bytes =
            std::fs::read(&config).with_context(|| format!("cannot read {}", config.display()))?;
        let migrated = match config::litellm(&config.to_string_lossy(), &bytes) {
            Ok(migrated) => migrated,
            Err(error) => {
                terminal::diagnostics(&[*error]);
                return Ok(ExitCode::FAILURE);
            }
        };
        terminal::diagnostics(&migrated.found);
        let MigratedConfig { routes, models, found } = migrated;
        match out {
            None => {
                let mut out = terminal::data();
                write!(out, "# routes.yaml\n{routes}\n# models.yaml\n{models}")?;
            }
            Some(directory) => {
                std::fs::create_dir_all(&directory)
                    .with_context(|| format!("cannot make {}", directory.display()))?;
                write(&directory.join("routes.yaml"), &routes)?;
                // Both are written even with warnings: what was converted is the start for the rest.
                write(&directory.join("models.yaml"), &models)?;
            }
        }
        let left_out = config::count(&found, Severity::Warning);
        if left_out == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        errln!("left out, or to be looked at: {left_out}; see the warnings above");
        Ok(ExitCode::from(PARTLY))
    }
}

/// Write a new file.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    // Never over an existing file: it may be the configuration of a running gateway.
    let mut file = std::fs::File::create_new(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}
