//! `tollgate completions`: shell completions.

use std::io::Write as _;
use std::process::ExitCode;

use super::terminal;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

/// Print a shell completion script.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate completions bash > /usr/share/bash-completion/completions/tollgate
  tollgate completions zsh > /usr/share/zsh/site-functions/_tollgate
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish")]
pub(super) struct Completions {
    /// Shell to write the script for.
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let mut script = Vec::new();
        // Into memory first: clap panics when standard output is closed.
        clap_complete::generate(self.shell, &mut super::Cli::command(), "tollgate", &mut script);
        terminal::data().write_all(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}
