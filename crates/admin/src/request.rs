//! Parsing of paths, query strings and bodies, and the pages of lists.

use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::description::{HandlerInput, Operation, Output};
use super::error::ApiError;
use super::value::{ObjectBody, Time};
use tollgate_types::clock::{MS_PER_DAY, UnixMs};
use tollgate_web_kit::cut_page;

/// The largest body, in bytes. The largest honest one is a key's list of models.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// The time within which a whole body must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Items of a list when the caller does not say.
pub(super) const PAGE_DEFAULT: usize = 100;
/// Maximum number of items of a list.
pub(super) const PAGE_MAX: usize = 500;

/// The longest time that is shown by the day: a leap year and the day that has begun.
pub(super) const DAYS_MAX: u64 = 367;
/// Default range of a list, in days.
const DAYS_DEFAULT: u64 = 30;

/// Period of a query; by default the last 30 days.
pub(super) fn period(from: Option<Time>, to: Option<Time>) -> (UnixMs, UnixMs) {
    let to = to.map_or_else(UnixMs::now, |to| to.0);
    let default = UnixMs(to.0.saturating_sub(DAYS_DEFAULT * MS_PER_DAY));
    (from.map_or(default, |from| from.0), to)
}

/// A JSON body. What `T` does not know is refused by name.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<AdminState> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &AdminState) -> Result<Self, ApiError> {
        let bytes = whole(request.into_body()).await?;
        parse(&bytes).map(|ObjectBody(body)| Self(body))
    }
}

impl<T: JsonSchema> HandlerInput for Body<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.json_body::<T>();
        operation.refusal(StatusCode::BAD_REQUEST, "Invalid value; `param` names it.");
        operation.refusal(StatusCode::REQUEST_TIMEOUT, "The body took longer than 10 seconds.");
        operation.refusal(StatusCode::PAYLOAD_TOO_LARGE, "The body is larger than 1 MiB.");
    }
}

/// A whole body, bounded in length and time.
pub(super) async fn whole(body: axum::body::Body) -> Result<axum::body::Bytes, ApiError> {
    let body = axum::body::to_bytes(body, BODY_BYTES_MAX);
    match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Err(_) => Err(ApiError::body_timeout()),
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(unreadable(&error)),
    }
}

fn unreadable(error: &axum::Error) -> ApiError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = source {
        if cause.to_string() == "length limit exceeded" {
            return ApiError::too_large(BODY_BYTES_MAX);
        }
        source = cause.source();
    }
    ApiError::malformed("The body broke off.")
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        // serde_path_to_error writes `.` for the document itself and `?` for a place that it does not know;
        // neither is a field.
        let path = error.path().to_string();
        unusable(error.inner(), Some(path).filter(|path| path != "." && path != "?"))
    })?;
    // Text behind the document is refused: two parsers could disagree on which of two bodies counts.
    json.end().map_err(|error| unusable(&error, None))?;
    Ok(value)
}

/// Error for an invalid body, with the field: by its path or, when serde has none, by the name in its
/// message.
fn unusable(error: &serde_json::Error, path: Option<String>) -> ApiError {
    let text = error.to_string();
    let message = format!("The body cannot be used: {text}.");
    let kinds = ["unknown field `", "missing field `", "duplicate field `"];
    let behind = kinds.iter().find_map(|kind| text.strip_prefix(kind));
    let named = behind.and_then(|rest| Some(rest.split_once('`')?.0.to_owned()));
    match named.or(path) {
        Some(param) => ApiError::invalid(param, message),
        None => ApiError::malformed(message),
    }
}

/// The names in a path's braces, in their order.
pub(super) struct PathNames<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<AdminState> for PathNames<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AdminState) -> Result<Self, ApiError> {
        // A name that is not even text names nothing.
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(names)) => Ok(Self(names)),
            Err(_) => Err(ApiError::not_found("No object has this id.")),
        }
    }
}

/// A 404, since the table of routes names the parameters of a path already.
impl<T> HandlerInput for PathNames<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.refusal(StatusCode::NOT_FOUND, "No object has this id.");
    }
}

/// The query string. What `T` does not know is refused by name.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<AdminState> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &AdminState) -> Result<Self, ApiError> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Self(params)),
            Err(error) => Err(ApiError::malformed(format!("{}.", error.body_text()))),
        }
    }
}

impl<T: JsonSchema> HandlerInput for Params<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.query::<T>();
        operation.refusal(StatusCode::BAD_REQUEST, "Invalid value; `param` names it.");
    }
}

/// Result of an idempotent creation: 201 the first time, 200 with the same body afterwards.
pub(super) struct WrittenOnce<T> {
    pub(super) repeated: bool,
    pub(super) body: T,
}

impl<T: Serialize> IntoResponse for WrittenOnce<T> {
    fn into_response(self) -> Response {
        let status = if self.repeated { StatusCode::OK } else { StatusCode::CREATED };
        (status, Json(self.body)).into_response()
    }
}

impl<T: JsonSchema> Output for WrittenOnce<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.reply::<T>(StatusCode::CREATED, "Done.");
        operation.reply::<T>(StatusCode::OK, "Repeated request: nothing has changed.");
        let why = "The id was used before with another content.";
        operation.refusal(StatusCode::CONFLICT, why);
    }
}

/// Query of a list: up to `limit` items after `after`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery<Id> {
    /// Maximum number of items; default 100.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    pub(super) limit: Option<usize>,
    /// `next_after` of the previous page.
    pub(super) after: Option<Id>,
}

/// A page of a list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ListOf{View}")]
pub(super) struct ListView<View, Id> {
    data: Vec<View>,
    /// True if there are more items.
    has_more: bool,
    /// Value of `after` for the next page; `null` on the last.
    next_after: Option<Id>,
}

impl<View, Id> ListView<View, Id> {
    /// A part that the ledger has cut.
    pub(super) fn new(data: Vec<View>, next_after: Option<Id>) -> Self {
        Self { data, has_more: next_after.is_some(), next_after }
    }
}

impl<Id: Copy + PartialEq + Serialize> PageQuery<Id> {
    /// The answer for this part of `items`, each shown by `view`.
    pub(super) fn list<T, View: Serialize>(
        self,
        mut items: Vec<T>,
        id: impl Fn(&T) -> Id,
        view: impl Fn(T) -> View,
    ) -> Result<ListView<View, Id>, ApiError> {
        let limit = check_limit(self.limit.unwrap_or(PAGE_DEFAULT))?;
        if let Some(after) = self.after {
            let Some(place) = items.iter().position(|item| id(item) == after) else {
                return Err(unknown_cursor());
            };
            // By the item, not by an offset: an item added meanwhile shifts no page.
            items.drain(..=place);
        }
        let next_after = cut_page(&mut items, limit, id);
        let data: Vec<View> = items.into_iter().map(view).collect();
        Ok(ListView::new(data, next_after))
    }
}

/// Refusal of a cursor that is no item of the list.
pub(super) fn unknown_cursor() -> ApiError {
    ApiError::invalid("after", "The list has no item with this id.")
}

/// A caller's limit, if it is one.
pub(super) fn check_limit(limit: usize) -> Result<usize, ApiError> {
    if (1..=PAGE_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(ApiError::invalid("limit", format!("`limit` goes from 1 to {PAGE_MAX}.")))
}
