//! The two files that a configuration is in, as commands are told of them.

use std::path::PathBuf;

use clap::Args;

use crate::config::Sources;

/// Where the two files are.
#[derive(Clone, Debug, Args)]
pub(super) struct Files {
    /// Listeners, upstreams, routes, limits and the store.
    #[arg(long, default_value = "routes.yaml", value_name = "FILE")]
    pub(super) routes: PathBuf,
    /// Models, their targets and prices.
    #[arg(long, default_value = "models.yaml", value_name = "FILE")]
    pub(super) models: PathBuf,
}

impl Files {
    /// Both as what a configuration is loaded from.
    pub(super) fn sources(&self) -> Sources {
        Sources::Files { routes: self.routes.clone(), models: self.models.clone() }
    }
}
