//! Locations of the two configuration files, from command-line arguments.

use std::path::{Path, PathBuf};

use clap::Args;

use super::exit::{FAILED, Failure};
use tollgate_config::{Diagnostic, RoutesFile, Sources};

/// Configuration directory of an installed gateway.
const INSTALLED: &str = "/etc/tollgate";

/// Locations of the two files.
#[derive(Clone, Debug, Args)]
pub(super) struct Files {
    /// File with listeners, upstreams, routes, limits and the store. Default: `routes.yaml` in the
    /// working directory, or else in `/etc/tollgate`.
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// File with models, their targets and prices. Default: `models.yaml` beside `routes.yaml`, unless
    /// that has `models` itself.
    #[arg(long, value_name = "FILE")]
    models: Option<PathBuf>,
}

impl Files {
    /// Locations for a `routes.yaml`, named or default.
    pub(super) fn at(routes: Option<PathBuf>) -> Self {
        Self { routes, models: None }
    }

    /// Path of `routes.yaml`.
    pub(super) fn routes(&self) -> PathBuf {
        match &self.routes {
            Some(routes) => routes.clone(),
            None => self.unnamed_directory().join("routes.yaml"),
        }
    }

    /// Path of `models.yaml`.
    pub(super) fn models(&self) -> PathBuf {
        match (&self.models, &self.routes) {
            (Some(models), _) => models.clone(),
            (None, Some(routes)) => routes.with_file_name("models.yaml"),
            (None, None) => self.unnamed_directory().join("models.yaml"),
        }
    }

    /// File that lists the models: `routes.yaml` if there is no `models.yaml`.
    pub(super) fn listing(&self) -> PathBuf {
        let (routes, models) = (self.routes(), self.models());
        // With neither file, the error names models.yaml, which is what most installations have.
        if !models.exists() && routes.exists() { routes } else { models }
    }

    /// Sources for loading the configuration.
    pub(super) fn sources(&self) -> Sources {
        Sources::Files { routes: self.routes(), models: self.models() }
    }

    /// Parse `routes.yaml` for single settings.
    ///
    /// # Errors
    /// Errors of the file.
    pub(super) fn settings(&self) -> Result<RoutesFile, Vec<Diagnostic>> {
        RoutesFile::read(&self.routes())
    }

    /// True if `routes.yaml` was named or exists at a default location.
    pub(super) fn has_routes(&self) -> bool {
        self.routes.is_some() || self.routes().exists()
    }

    /// Default directory of the files; the working directory if there are none, for error messages.
    fn unnamed_directory(&self) -> &'static Path {
        let (here, installed) = (Path::new(""), Path::new(INSTALLED));
        let has_files = |directory: &Path| directory.join("routes.yaml").exists();
        if !has_files(here) && has_files(installed) { installed } else { here }
    }
}

/// Value of a setting; `None` if it is invalid, with its errors added to `wrong`.
pub(super) fn noted<T>(
    setting: Result<T, Vec<Diagnostic>>,
    wrong: &mut Vec<Diagnostic>,
) -> Option<T> {
    setting.map_err(|mut errors| wrong.append(&mut errors)).ok()
}

/// Invalid settings as one error line without duplicates; `otherwise` is an alternative for the user.
pub(super) fn failure(errors: &[Diagnostic], otherwise: &str) -> anyhow::Error {
    let mut messages: Vec<&str> = Vec::new();
    let mut reasons = Vec::new();
    for error in errors {
        // Several settings may need the same missing variable.
        if messages.contains(&error.message.as_str()) {
            continue;
        }
        messages.push(&error.message);
        reasons.push(match &error.place {
            Some(place) => format!("{}:{}: {}", error.file, place.line, error.message),
            None => error.message.clone(),
        });
    }
    let help = errors.iter().find_map(|error| error.help.as_deref());
    let help = match help {
        Some(help) => format!("{help}; {otherwise}"),
        None => otherwise.to_owned(),
    };
    Failure { code: FAILED, message: reasons.join("; "), help: Some(help) }.into()
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
