//! The two YAML files, from bytes to what a request sees.
//!
//! `document` parses a file and fills in its variables, `shape` holds it against the JSON Schema of
//! the types in `raw`, and `compile` turns those into an immutable [`snapshot`]. Each step notes
//! everything that it finds, with the place that `spans` knows, so an operator sees all of it at
//! once. A [`ConfigHandle`] replaces the snapshot while the gateway runs.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

pub mod snapshot;

mod certificate;
mod compile;
mod database_url;
mod described;
mod diagnostic;
mod document;
mod expand;
mod fault;
mod format;
mod memory;
mod migrate;
mod names;
mod network;
mod rate;
mod raw;
mod reload;
mod routes_file;
#[doc(hidden)]
pub mod sample;
mod scalar;
mod shape;
#[cfg(test)]
mod shipped_holds;
mod shown;
mod spans;
mod url;
mod webhook_host;
mod window;

pub use certificate::{Certificate, CertificateError, CertificateFile, CertificateFiles};
pub use compile::TypedModel;
pub use described::{Change, RedactedConfig, as_yaml, changes};
pub use diagnostic::{Diagnostic, DiagnosticReport, Severity, SourceExcerpt, count, report};
pub use migrate::{MigratedConfig, litellm};
pub use reload::{ConfigHandle, LastReload, ReloadSummary, Trigger};
pub use routes_file::RoutesFile;

pub use shape::WithoutNull;

use document::{Document, Fault};
use snapshot::Snapshot;
use spans::DocumentPath;
use tollgate_options::network::ProxyRules;

/// The field in which models are listed, in either file.
const MODELS: &str = "models";

/// Source of the configuration.
#[derive(Clone, Debug)]
pub enum Sources {
    /// Two files that the operator has written.
    Files {
        /// The path of `routes.yaml`, which may have the models itself.
        routes: PathBuf,
        /// Path of `models.yaml`. Unused if `routes.yaml` contains the models.
        models: PathBuf,
    },
    /// The files that are compiled into this build.
    Embedded,
}

impl Sources {
    /// The directories in which the files are, as they were named.
    #[must_use]
    pub fn directories(&self) -> Vec<PathBuf> {
        let Self::Files { routes, models } = self else { return Vec::new() };
        let directory_of = |file: &PathBuf| match file.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory.to_owned(),
            _ => PathBuf::from("."),
        };
        let mut directories = vec![directory_of(routes), directory_of(models)];
        directories.dedup();
        directories
    }

    /// A text that changes whenever what the files hold does, or whether they can be read.
    fn content(&self) -> String {
        let Self::Files { routes, models } = self else { return String::new() };
        let read = |path| {
            std::fs::read(path).unwrap_or_else(|error| format!("{:?}", error.kind()).into_bytes())
        };
        hash(&read(routes), &read(models))
    }
}

/// Settings of the command line that take precedence over the files.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The only address to listen on.
    pub listen: Option<SocketAddr>,
    /// The admin API's address.
    pub admin: Option<SocketAddr>,
    /// Data directory of the ledger, instead of `store.data_dir`.
    pub data_dir: Option<PathBuf>,
    /// One server without TLS that replaces every upstream. Path prefixes are kept; credentials are replaced
    /// by a fixed text, so that none is needed and none can leak.
    pub every_upstream_at: Option<SocketAddr>,
    /// Variables and files that are missing are warnings: keys count as given, and what depends on
    /// anything else is left out. For looking at files where the service's secrets are not.
    pub allow_unset: bool,
}

/// Loads the configuration with the environment of this process.
///
/// # Errors
/// Everything that is wrong with the files, warnings included, in the order of the files.
pub fn load(
    sources: &Sources,
    overrides: &Overrides,
) -> Result<(Snapshot, Vec<Diagnostic>), Vec<Diagnostic>> {
    load_with(sources, overrides, &variable)
}

/// The value of an environment variable.
#[expect(clippy::disallowed_methods, reason = "the configuration is what reads the environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Loads the configuration; `env` looks up environment variables.
///
/// # Errors
/// Everything that is wrong with the files, warnings included, in the order of the files.
pub fn load_with(
    sources: &Sources,
    overrides: &Overrides,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(Snapshot, Vec<Diagnostic>), Vec<Diagnostic>> {
    match sources {
        Sources::Embedded => {
            let routes = include_bytes!("../../../routes.yaml");
            let models = include_bytes!("../../../models.yaml");
            let routes = SourceFile { name: "routes.yaml", bytes: routes };
            let models = SourceFile { name: "models.yaml", bytes: models };
            compile_text(routes, Some(models), overrides, env)
        }
        Sources::Files { routes, models } => {
            let bytes = read_files(routes, models)?;
            let (routes, models) = (routes.to_string_lossy(), models.to_string_lossy());
            let routes = SourceFile { name: &routes, bytes: &bytes.routes };
            let models = bytes.models.as_deref().map(|bytes| SourceFile { name: &models, bytes });
            compile_text(routes, models, overrides, env)
        }
    }
}

/// The forward proxies that the environment of this process names.
#[must_use]
pub fn environment_proxies() -> ProxyRules {
    ProxyRules::from_environment(variable)
}

/// The bytes of the files of a configuration.
struct FileBytes {
    routes: Vec<u8>,
    /// `None` where the routes have the models, or one file is named as both.
    models: Option<Vec<u8>>,
}

/// Reads both files, or the single file with both.
fn read_files(
    routes_path: &std::path::Path,
    models_path: &std::path::Path,
) -> Result<FileBytes, Vec<Diagnostic>> {
    let mut missing = Vec::new();
    let mut read = |path: &std::path::Path| match std::fs::read(path) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            missing.push(unreadable(path, &error));
            None
        }
    };
    let routes = read(routes_path);
    let models = if routes_path == models_path { None } else { read(models_path) };
    match routes {
        Some(routes) if missing.is_empty() || has_models(routes_path, &routes) => {
            Ok(FileBytes { routes, models })
        }
        _ => Err(missing),
    }
}

/// True if a `routes.yaml` contains the models.
fn has_models(routes: &std::path::Path, bytes: &[u8]) -> bool {
    let document = Document::parse(&routes.to_string_lossy(), bytes, &|_| None, routes_schema());
    document.is_ok_and(|document| document.has_field(MODELS))
}

/// The hash of the files, and both as typed in one document, which [`changes`] compares. Variables
/// need not be set for this.
///
/// # Errors
/// What keeps the files from being YAML.
pub fn describe(
    routes: &std::path::Path,
    models: &std::path::Path,
) -> Result<(String, RedactedConfig), Vec<Diagnostic>> {
    let bytes = read_files(routes, models)?;
    let described = |path: &std::path::Path, bytes: &[u8], schema| {
        let document = Document::parse(&path.to_string_lossy(), bytes, &|_| None, schema)?;
        Ok::<_, Vec<Diagnostic>>(document.described)
    };
    let mut whole = described(routes, &bytes.routes, routes_schema())?;
    if let Some(bytes) = &bytes.models {
        whole = described::together(whole, described(models, bytes, models_schema())?);
    }
    Ok((hash(&bytes.routes, bytes.models.as_deref().unwrap_or_default()), whole))
}

/// The models of a `models.yaml`, or of a `routes.yaml` that contains them, with their prices, expanded with
/// the environment of this process. The consistency of the file is not checked.
///
/// # Errors
/// What keeps its fields from being read.
pub fn typed_models(
    models: &std::path::Path,
) -> Result<(Vec<TypedModel>, Vec<Diagnostic>), Vec<Diagnostic>> {
    let bytes = std::fs::read(models).map_err(|error| vec![unreadable(models, &error)])?;
    let name = models.to_string_lossy();
    let mut document = Document::parse(&name, &bytes, &variable, models_schema())?;
    if document.has_field("upstreams")
        && let Some(models) = document.split_off(MODELS)
    {
        document = models;
    }
    let typed = compile::typed_models(&mut document);
    let diagnostics = document.into_diagnostics();
    match typed {
        Some(typed) => Ok((typed, diagnostics)),
        None => Err(diagnostics),
    }
}

/// The JSON Schema of `routes.yaml`.
#[must_use]
pub fn routes_schema() -> serde_json::Value {
    shape::schema_of::<raw::Routes>().to_value()
}

/// The JSON Schema of `models.yaml`.
#[must_use]
pub fn models_schema() -> serde_json::Value {
    shape::schema_of::<raw::Models>().to_value()
}

/// One of the two files, as read.
#[derive(Clone, Copy)]
struct SourceFile<'a> {
    /// The name that diagnostics show.
    name: &'a str,
    /// The bytes of the file, in whatever encoding.
    bytes: &'a [u8],
}

/// Compiles the two files.
fn compile_text(
    routes_file: SourceFile<'_>,
    models_file: Option<SourceFile<'_>>,
    overrides: &Overrides,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(Snapshot, Vec<Diagnostic>), Vec<Diagnostic>> {
    let mut routes = Document::parse(routes_file.name, routes_file.bytes, env, routes_schema());
    let inside = routes.as_mut().ok().and_then(|routes| routes.split_off(MODELS));
    let models = match (inside, models_file) {
        (Some(mut models), other) => {
            if let Some(other) = other {
                let message = format!("there are models here and in `{}`", other.name);
                let help = "keep one of the two: nothing says which counts";
                models.note(Fault::at_key(&DocumentPath::root().key(MODELS), message).help(help));
            }
            Ok(models)
        }
        (None, Some(file)) => Document::parse(file.name, file.bytes, env, models_schema()),
        // One file that is both, and has none: it says so itself.
        (None, None) => Document::parse(routes_file.name, b"", env, models_schema()),
    };
    let (mut routes, mut models) = match (routes, models) {
        (Ok(routes), Ok(models)) => (routes, models),
        (routes, models) => {
            let errors = [routes.err(), models.err()];
            return Err(errors.into_iter().flatten().flatten().collect());
        }
    };
    let hash = hash(routes_file.bytes, models_file.map(|file| file.bytes).unwrap_or_default());
    let proxies = Arc::new(ProxyRules::from_environment(env));
    let snapshot = compile::compile(&mut routes, &mut models, overrides, &proxies, hash);
    let mut diagnostics = routes.into_diagnostics();
    diagnostics.append(&mut models.into_diagnostics());
    let is_error = |diagnostic: &Diagnostic| diagnostic.severity == Severity::Error;
    match snapshot {
        Some(snapshot) if !diagnostics.iter().any(is_error) => Ok((snapshot, diagnostics)),
        _ => Err(diagnostics),
    }
}

fn unreadable(path: &std::path::Path, error: &std::io::Error) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        message: format!("`{}` cannot be read: {error}", path.display()),
        file: path.display().to_string(),
        place: None,
        help: Some("name the file with `--routes` or `--models`".to_owned()),
    }
}

/// The first 12 hex digits of the SHA-256 of both files.
fn hash(routes: &[u8], models: &[u8]) -> String {
    const HEX_DIGITS: usize = 12;
    let mut hasher = Sha256::new();
    // The length keeps a byte that moves from one file to the other from going unseen.
    hasher.update(routes.len().to_le_bytes());
    hasher.update(routes);
    hasher.update(models);
    let hex: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    hex.chars().take(HEX_DIGITS).collect()
}

#[cfg(test)]
mod shipped_tests;
#[cfg(test)]
mod hostile_tests;
