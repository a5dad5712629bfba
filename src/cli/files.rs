//! The two files that a configuration is in, as commands are told of them.

use std::path::{Path, PathBuf};

use clap::Args;

use super::serve;
use crate::config::snapshot::Snapshot;
use crate::config::{self, Overrides, Severity, Sources};

/// Where an installed gateway has its files.
const INSTALLED: &str = "/etc/tollgate";

/// Where the two files are.
#[derive(Clone, Debug, Args)]
pub(super) struct Files {
    /// Listeners, upstreams, routes, limits and the store. Default: `routes.yaml` in the working
    /// directory, or, where there is none, in `/etc/tollgate`.
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// Models, their targets and prices. Default: `models.yaml` beside `routes.yaml`, if that has no
    /// `models` itself.
    #[arg(long, value_name = "FILE")]
    models: Option<PathBuf>,
}

impl Files {
    /// The path of `routes.yaml`.
    pub(super) fn routes(&self) -> PathBuf {
        match &self.routes {
            Some(routes) => routes.clone(),
            None => self.unnamed_directory().join("routes.yaml"),
        }
    }

    /// The path of `models.yaml`.
    pub(super) fn models(&self) -> PathBuf {
        match (&self.models, &self.routes) {
            (Some(models), _) => models.clone(),
            (None, Some(routes)) => routes.with_file_name("models.yaml"),
            (None, None) => self.unnamed_directory().join("models.yaml"),
        }
    }

    /// The file in which the models are listed: `routes.yaml`, where there is no `models.yaml`.
    pub(super) fn listing(&self) -> PathBuf {
        let (routes, models) = (self.routes(), self.models());
        if !models.exists() && routes.exists() { routes } else { models }
    }

    /// Both as what a configuration is loaded from.
    pub(super) fn sources(&self) -> Sources {
        Sources::Files { routes: self.routes(), models: self.models() }
    }

    /// The configuration, for commands that only want to know where a gateway is and what it keeps:
    /// errors are printed, and then there is none; warnings are for `check` and `serve`.
    pub(super) fn load(&self) -> Option<Snapshot> {
        match config::load(&self.sources(), &Overrides::default()) {
            Ok((snapshot, _)) => Some(snapshot),
            Err(mut diagnostics) => {
                diagnostics.retain(|diagnostic| diagnostic.severity == Severity::Error);
                serve::print(&diagnostics);
                None
            }
        }
    }

    /// Where files are that nobody has named. Without any, errors are about the working directory.
    fn unnamed_directory(&self) -> &'static Path {
        let (here, installed) = (Path::new(""), Path::new(INSTALLED));
        let has_files = |directory: &Path| directory.join("routes.yaml").exists();
        if !has_files(here) && has_files(installed) { installed } else { here }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_beside_routes_unless_they_are_named() {
        let of = |routes: Option<&str>, models: Option<&str>| {
            let files = Files { routes: routes.map(Into::into), models: models.map(Into::into) };
            (files.routes(), files.models())
        };
        let pair = |routes: &str, models: &str| (PathBuf::from(routes), PathBuf::from(models));
        assert_eq!(of(None, None), pair("routes.yaml", "models.yaml"), "of this directory");
        assert_eq!(of(Some("/a/r.yaml"), None), pair("/a/r.yaml", "/a/models.yaml"));
        assert_eq!(of(Some("r.yaml"), None), pair("r.yaml", "models.yaml"));
        assert_eq!(of(Some("/a/r.yaml"), Some("m")), pair("/a/r.yaml", "m"));
        assert_eq!(of(None, Some("m")), pair("routes.yaml", "m"));
    }
}
