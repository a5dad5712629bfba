//! `tollgate schema`: the JSON Schema of the two files, for editors.

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::config;

/// Print the JSON Schema of a configuration file.
#[derive(Debug, Args)]
pub(super) struct Schema {
    /// Which file.
    #[arg(value_enum)]
    file: File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum File {
    Routes,
    Models,
}

impl Schema {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let schema = match self.file {
            File::Routes => config::routes_schema(),
            File::Models => config::models_schema(),
        };
        println!("{}", serde_json::to_string_pretty(&schema)?);
        Ok(ExitCode::SUCCESS)
    }
}
