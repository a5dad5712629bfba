//! The configuration: what is in force, since when, what the files would change, and putting them
//! in force.

use askama::Template;
use axum::response::{IntoResponse as _, Response};

use super::access::LoggedInOperator;
use super::done;
use super::form::FormResult;
use crate as admin;
use tollgate_config::{self as config, Change, Diagnostic, LastReload};
use tollgate_reload::{self as reload, ReloadAttempt};
use tollgate_types::clock::UnixMs;
use tollgate_types::secret::Secret;
use tollgate_web_kit::{FlashLevel, Form, HtmlPage, PageFrame, new_submit_token, show};

/// Entry of the navigation.
const HERE: &str = "/configuration";
/// Maximum number of listed differences.
const CHANGES_MAX: usize = 200;
/// The longest value of a difference that is shown, in characters.
const VALUE_CHARACTERS_MAX: usize = 300;
/// Maximum size of the files on the page, in bytes: a page has at most 100 KB compressed.
const FILES_BYTES_MAX: usize = 400 << 10;

#[derive(Template)]
#[template(path = "operator_configuration.html")]
struct Configuration {
    frame: PageFrame,
    once: String,
    hash: String,
    loaded_at: UnixMs,
    last: Option<Last>,
    tried: Option<AttemptOutcome>,
    files: FilesState,
}

/// Outcome of the last reload.
struct Last {
    at: UnixMs,
    by: String,
    outcome: AttemptOutcome,
}

/// Report of a reload.
struct AttemptOutcome {
    in_order: bool,
    /// Errors and warnings as the command line writes them.
    rendered: String,
    restart_only: String,
}

/// State of the files on disk.
enum FilesState {
    Same,
    Other { hash: String, changes: Vec<DifferenceRow>, left_out: usize },
    Broken(String),
}

/// One change, as `tollgate config diff` writes it.
struct DifferenceRow {
    sign: &'static str,
    field: String,
    text: String,
    restart_only: bool,
}

impl From<&Change> for DifferenceRow {
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

impl AttemptOutcome {
    fn from_result(result: &Result<config::ReloadSummary, Vec<Diagnostic>>) -> Self {
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
        Self {
            at: last.at,
            by: last.by.to_string(),
            outcome: AttemptOutcome::from_result(&last.result),
        }
    }
}

/// `GET /operator/configuration`
pub(super) async fn page(operator: LoggedInOperator) -> Response {
    render(&operator, operator.frame(HERE), None).await.into_response()
}

async fn render(
    operator: &LoggedInOperator,
    frame: PageFrame,
    tried: Option<AttemptOutcome>,
) -> HtmlPage<Configuration> {
    let config = &operator.admin().config;
    let running = config.load();
    let last = config.last_reload().map(|last| Last::from(&*last));
    let (read, key) = (std::sync::Arc::clone(config), operator.admin().token.clone());
    // Two files are read and compared: some milliseconds with a thousand models.
    let files = tokio::task::spawn_blocking(move || files(&read, &key)).await;
    let files = files.unwrap_or_else(|error| FilesState::Broken(error.to_string()));
    let (hash, loaded_at) = (running.hash.clone(), config.loaded_at());
    HtmlPage(Configuration { frame, once: new_submit_token(), hash, loaded_at, last, tried, files })
}

fn files(config: &config::ConfigHandle, key: &Secret) -> FilesState {
    let running = config.load();
    match config.describe_files() {
        Err(errors) => FilesState::Broken(rendered(&errors)),
        Ok((hash, _)) if hash == running.hash => FilesState::Same,
        Ok((hash, files)) => {
            let changes = config::changes(&running.described.shown(key), &files.shown(key));
            let left_out = changes.len().saturating_sub(CHANGES_MAX);
            let changes = changes.iter().take(CHANGES_MAX).map(DifferenceRow::from).collect();
            FilesState::Other { hash, changes, left_out }
        }
    }
}

/// `POST /operator/configuration/try`: reports the result of a reload without any change.
pub(super) async fn try_out(operator: LoggedInOperator) -> Response {
    let attempt = reload::try_out(&operator.admin().config).await;
    let (level, text) = if attempt.is_in_order() {
        (FlashLevel::Success, "The files are in order. They are not in force yet.")
    } else {
        (FlashLevel::Error, "The files are not in order.")
    };
    render_attempt(&operator, &attempt, level, text).await
}

/// `POST /operator/configuration/reload`
pub(super) async fn apply(operator: LoggedInOperator, form: Form) -> Response {
    let attempt = match put_in_force(&operator, &form).await {
        Ok(attempt) => attempt,
        Err(error) => return operator.failed(error.into_api_error()),
    };
    if attempt.is_in_order() {
        return done::redirect(HERE, "reloaded");
    }
    let text = "The files are not in order: the configuration that runs stays in force.";
    render_attempt(&operator, &attempt, FlashLevel::Error, text).await
}

async fn put_in_force(operator: &LoggedInOperator, form: &Form) -> FormResult<ReloadAttempt> {
    let by = operator.by(form)?;
    Ok(admin::config::put_in_force(operator.admin(), &operator.actor(), &by).await?)
}

async fn render_attempt(
    operator: &LoggedInOperator,
    attempt: &ReloadAttempt,
    level: FlashLevel,
    text: &str,
) -> Response {
    let frame = operator.frame(HERE).with_flash(level, text);
    let page = render(operator, frame, Some(AttemptOutcome::from_result(&attempt.result))).await;
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
    frame: PageFrame,
    hash: String,
    text: String,
    left_out: usize,
}

/// `GET /operator/configuration/files`: the active configuration as written.
pub(super) async fn typed(operator: LoggedInOperator) -> Response {
    let running = operator.admin().config.load();
    let mut text = config::as_yaml(&running.described.shown(&operator.admin().token));
    let whole = text.len();
    let end = (0..=FILES_BYTES_MAX.min(whole)).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    let left_out = whole - text.len();
    let (frame, hash) = (operator.frame(HERE), running.hash.clone());
    HtmlPage(FilesPage { frame, hash, text, left_out }).into_response()
}
