//! The two files that a configuration is in, as commands are told of them.

use std::path::{Path, PathBuf};

use clap::Args;

use super::exit::{FAILED, Failure};
use tollgate_config::{Diagnostic, RoutesFile, Sources};

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
    /// The files of a `routes.yaml`, named or where it is looked for.
    pub(super) fn at(routes: Option<PathBuf>) -> Self {
        Self { routes, models: None }
    }

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

    /// `routes.yaml`, of which commands read the settings that they need and no others.
    ///
    /// # Errors
    /// Why the file cannot be read.
    pub(super) fn settings(&self) -> Result<RoutesFile, Vec<Diagnostic>> {
        RoutesFile::read(&self.routes())
    }

    /// Whether `routes.yaml` was named, or is where it is looked for.
    pub(super) fn has_routes(&self) -> bool {
        self.routes.is_some() || self.routes().exists()
    }

    /// Where files are that nobody has named. Without any, errors are about the working directory.
    fn unnamed_directory(&self) -> &'static Path {
        let (here, installed) = (Path::new(""), Path::new(INSTALLED));
        let has_files = |directory: &Path| directory.join("routes.yaml").exists();
        if !has_files(here) && has_files(installed) { installed } else { here }
    }
}

/// The setting that was read; `None` for one that cannot be used, of which the reasons are added to
/// `wrong`.
pub(super) fn noted<T>(
    setting: Result<T, Vec<Diagnostic>>,
    wrong: &mut Vec<Diagnostic>,
) -> Option<T> {
    setting.map_err(|mut errors| wrong.append(&mut errors)).ok()
}

/// Settings that cannot be used as one line, each reason once; `otherwise` is what else can be done.
pub(super) fn failure(errors: &[Diagnostic], otherwise: &str) -> anyhow::Error {
    let mut said: Vec<&str> = Vec::new();
    let mut reasons = Vec::new();
    for error in errors {
        if said.contains(&error.message.as_str()) {
            continue;
        }
        said.push(&error.message);
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
