//! `tollgate schema`: JSON Schemas of the two files, and the OpenAPI document of the admin API.

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::Program;
use super::terminal::outln;

/// Print the JSON Schema of a configuration file, or the OpenAPI document of the admin API.
#[derive(Debug, Args)]
pub(super) struct Schema {
    /// File, or the admin API.
    #[arg(value_enum)]
    of: SchemaName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SchemaName {
    /// `routes.yaml`
    Routes,
    /// `models.yaml`
    Models,
    /// The admin API, in OpenAPI 3.1
    Admin,
}

impl Schema {
    /// Run the command: print a schema.
    pub(super) fn run(self, program: &Program) -> anyhow::Result<ExitCode> {
        let schema = match self.of {
            SchemaName::Routes => tollgate_config::routes_schema(),
            SchemaName::Models => tollgate_config::models_schema(),
            SchemaName::Admin => (program.admin_openapi)(),
        };
        outln!("{}", serde_json::to_string_pretty(&schema)?);
        Ok(ExitCode::SUCCESS)
    }
}
