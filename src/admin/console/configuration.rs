//! The configuration: what is in force, since when, what the files would change, and putting them
//! in force.

use askama::Template;
use axum::response::{IntoResponse as _, Response};

use super::access::Operator;
use super::done;
use super::form::{Fit, Typed, Unfit, new_once};
use crate::admin::{self, error::ApiError};
use crate::clock::UnixMs;
use crate::config::{self, Change, Diagnostic, LastReload};
use crate::reload::{self, Attempt};
use crate::web::{Frame, Page, Tone, show};

/// The way through the console.
const HERE: &str = "/configuration";
/// The most differences that are shown: whoever changes more reads the files.
const CHANGES_MAX: usize = 200;
/// The longest value of a difference that is shown, in characters.
const VALUE_CHARACTERS_MAX: usize = 300;
/// The most of the files that is shown, in bytes: a page has at most 100 KB compressed.
const FILES_BYTES_MAX: usize = 400 << 10;

#[derive(Template)]
#[template(path = "operator_configuration.html")]
struct Configuration {
    frame: Frame,
    once: String,
    hash: String,
    loaded_at: UnixMs,
    last: Option<Last>,
    tried: Option<Outcome>,
    files: Files,
}

/// How the last reload ended.
struct Last {
    at: UnixMs,
    by: String,
    outcome: Outcome,
}

/// What an attempt has to say.
struct Outcome {
    in_order: bool,
    /// Errors and warnings as the command line writes them.
    rendered: String,
    restart_only: String,
}

/// What the files hold now.
enum Files {
    Same,
    Other { hash: String, changes: Vec<Difference>, left_out: usize },
    Broken(String),
}

/// One change, as `tollgate config diff` writes it.
struct Difference {
    sign: &'static str,
    field: String,
    text: String,
    restart_only: bool,
}

impl From<&Change> for Difference {
    fn from(change: &Change) -> Self {
        let shown = |value: &Option<_>| value.as_ref().map(|value| cut(&format!("{value}")));
        let (sign, text) = match (shown(&change.running), shown(&change.files)) {
            (None, files) => ("+", files.unwrap_or_default()),
            (Some(running), None) => ("−", running),
            (Some(running), Some(files)) => ("~", format!("{running} → {files}")),
        };
        Self { sign, field: change.field.clone(), text, restart_only: change.restart_only }
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(VALUE_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

impl Outcome {
    fn of(result: &Result<config::Reloaded, Vec<Diagnostic>>) -> Self {
        let (in_order, diagnostics, restart_only) = match result {
            Ok(reloaded) => (true, &reloaded.warnings, reloaded.restart_only.join(", ")),
            Err(errors) => (false, errors, String::new()),
        };
        Self { in_order, rendered: rendered(diagnostics), restart_only }
    }
}

fn rendered(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(Diagnostic::render).collect::<Vec<_>>().join("\n\n")
}

impl From<&LastReload> for Last {
    fn from(last: &LastReload) -> Self {
        Self { at: last.at, by: last.by.to_string(), outcome: Outcome::of(&last.result) }
    }
}

/// `GET /operator/configuration`
pub(super) async fn page(operator: Operator) -> Response {
    shown(&operator, operator.frame(HERE), None).await.into_response()
}

async fn shown(operator: &Operator, frame: Frame, tried: Option<Outcome>) -> Page<Configuration> {
    let config = &operator.admin().config;
    let running = config.load();
    let last = config.last_reload().map(|last| Last::from(&*last));
    let read = std::sync::Arc::clone(config);
    // Two files are read and compared: some milliseconds with a thousand models.
    let files = tokio::task::spawn_blocking(move || files(&read)).await;
    let files = files.unwrap_or_else(|error| Files::Broken(error.to_string()));
    let (hash, loaded_at) = (running.hash.clone(), config.loaded_at());
    Page(Configuration { frame, once: new_once(), hash, loaded_at, last, tried, files })
}

fn files(config: &config::ConfigHandle) -> Files {
    let running = config.load();
    match config.describe_files() {
        Err(errors) => Files::Broken(rendered(&errors)),
        Ok((hash, _)) if hash == running.hash => Files::Same,
        Ok((hash, files)) => {
            let changes = config::changes(&running.described, &files);
            let left_out = changes.len().saturating_sub(CHANGES_MAX);
            let changes = changes.iter().take(CHANGES_MAX).map(Difference::from).collect();
            Files::Other { hash, changes, left_out }
        }
    }
}

/// `POST /operator/configuration/try`: says what a reload would do.
pub(super) async fn try_out(operator: Operator) -> Response {
    let attempt = reload::try_out(&operator.admin().config).await;
    let (tone, text) = if attempt.is_in_order() {
        (Tone::Good, "The files are in order. They are not in force yet.")
    } else {
        (Tone::Bad, "The files are not in order.")
    };
    answered(&operator, &attempt, (tone, text)).await
}

/// `POST /operator/configuration/reload`
pub(super) async fn apply(operator: Operator, typed: Typed) -> Response {
    let attempt = match put_in_force(&operator, &typed).await {
        Ok(attempt) => attempt,
        Err(Unfit::Whole(error)) => return operator.failed(error),
        Err(Unfit::Field(_, text)) => return operator.failed(ApiError::malformed(text)),
    };
    if attempt.is_in_order() {
        return done::then(HERE, "reloaded");
    }
    let text = "The files are not in order: the configuration that runs stays in force.";
    answered(&operator, &attempt, (Tone::Bad, text)).await
}

async fn put_in_force(operator: &Operator, typed: &Typed) -> Fit<Attempt> {
    let by = operator.by(typed)?;
    Ok(admin::config::put_in_force(operator.admin(), &operator.actor(), &by).await?)
}

async fn answered(operator: &Operator, attempt: &Attempt, (tone, text): (Tone, &str)) -> Response {
    let frame = operator.frame(HERE).saying(tone, text);
    let page = shown(operator, frame, Some(Outcome::of(&attempt.result))).await;
    let status = if attempt.is_in_order() {
        axum::http::StatusCode::OK
    } else {
        axum::http::StatusCode::UNPROCESSABLE_ENTITY
    };
    (status, page).into_response()
}

#[derive(Template)]
#[template(path = "operator_files.html")]
struct FilesPage {
    frame: Frame,
    hash: String,
    text: String,
    left_out: usize,
}

/// `GET /operator/configuration/files`: what is in force, as it was typed.
pub(super) async fn typed(operator: Operator) -> Response {
    let running = operator.admin().config.load();
    let mut text = config::as_yaml(&running.described);
    let whole = text.len();
    let end = (0..=FILES_BYTES_MAX.min(whole)).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    let left_out = whole - text.len();
    let (frame, hash) = (operator.frame(HERE), running.hash.clone());
    Page(FilesPage { frame, hash, text, left_out }).into_response()
}
