//! One entry of the admin API's table: a path, its handler, and what a document says of both.
//!
//! What a handler takes and gives is read off its signature: an entry cannot say another thing than
//! the code does, and a handler whose types are not described cannot be entered.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::generate::SchemaSettings;
use schemars::transform::Transform as _;
use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::AdminState;
use super::error::{ApiError, ErrorEnvelope};
use super::prices::GROUP_PATTERN;
use super::request::{Body, Params, Path};
use tollgate_config::WithoutNull;

/// The time within which the ledger must have answered. A disk that takes longer is not working.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// One method of one path.
pub(super) struct AdminRoute {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// The operation's name in generated clients.
    id: &'static str,
    /// One sentence without a full stop.
    summary: &'static str,
    /// The chapter that it stands in.
    tag: &'static str,
    describe: fn(&mut Operation<'_>),
    /// Refusals that its types do not tell.
    refusals: Vec<(StatusCode, &'static str)>,
    /// The time within which it must have answered.
    within: Duration,
    service: MethodRouter<AdminState>,
}

/// Title of an entry: its name, its chapter and its summary.
pub(super) struct Title(pub(super) &'static str, pub(super) &'static str, pub(super) &'static str);

/// An entry for GET.
pub(super) fn get<H, T, Args>(path: &'static str, title: Title, handler: H) -> AdminRoute
where
    H: Handler<T, AdminState> + DescribedHandler<Args>,
    T: 'static,
{
    AdminRoute::new(Method::GET, MethodFilter::GET, path, title, handler)
}

/// An entry for POST.
pub(super) fn post<H, T, Args>(path: &'static str, title: Title, handler: H) -> AdminRoute
where
    H: Handler<T, AdminState> + DescribedHandler<Args>,
    T: 'static,
{
    AdminRoute::new(Method::POST, MethodFilter::POST, path, title, handler)
}

/// An entry for PATCH.
pub(super) fn patch<H, T, Args>(path: &'static str, title: Title, handler: H) -> AdminRoute
where
    H: Handler<T, AdminState> + DescribedHandler<Args>,
    T: 'static,
{
    AdminRoute::new(Method::PATCH, MethodFilter::PATCH, path, title, handler)
}

/// An entry for PUT.
pub(super) fn put<H, T, Args>(path: &'static str, title: Title, handler: H) -> AdminRoute
where
    H: Handler<T, AdminState> + DescribedHandler<Args>,
    T: 'static,
{
    AdminRoute::new(Method::PUT, MethodFilter::PUT, path, title, handler)
}

impl AdminRoute {
    fn new<H, T, Args>(
        method: Method,
        filter: MethodFilter,
        path: &'static str,
        Title(id, tag, summary): Title,
        handler: H,
    ) -> Self
    where
        H: Handler<T, AdminState> + DescribedHandler<Args>,
        T: 'static,
    {
        let service = on(filter, handler);
        let (describe, refusals) = (H::describe as fn(&mut Operation<'_>), Vec::new());
        let within = ANSWER_TIMEOUT;
        Self { method, path, id, summary, tag, describe, refusals, within, service }
    }

    /// It may also refuse with this status, because of `why`.
    pub(super) fn or(mut self, status: StatusCode, why: &'static str) -> Self {
        self.refusals.push((status, why));
        self
    }

    /// It takes this long at most, rather than as long as any other.
    pub(super) fn within(mut self, limit: Duration) -> Self {
        self.within = limit;
        self
    }

    /// True if the path requires the token.
    fn is_guarded(&self) -> bool {
        self.path.starts_with("/admin/")
    }

    /// Entry of the router.
    pub(super) fn into_service(self) -> (&'static str, MethodRouter<AdminState>) {
        let within = self.within;
        let bounded = move |request: Request, next: Next| answered(within, next.run(request));
        (self.path, self.service.layer(from_fn(bounded)))
    }

    /// Entry of the OpenAPI document.
    pub(super) fn document(&self, schemas: &mut Schemas) -> Value {
        let mut operation = Operation::new(schemas);
        for name in names_in(self.path) {
            operation.path_parameter(name);
        }
        if self.is_guarded() {
            operation.refusal(StatusCode::UNAUTHORIZED, "No token, or a wrong one.");
            operation.refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                "The gateway failed; its log says why.",
            );
            operation.refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                "The ledger did not confirm in time, or is closing.",
            );
        }
        (self.describe)(&mut operation);
        if self.is_guarded() {
            let why = "Too many wrong tokens came from this address.";
            operation.refusal(StatusCode::TOO_MANY_REQUESTS, why);
        }
        for (status, why) in &self.refusals {
            operation.refusal(*status, why);
        }
        let mut document = json!({
            "operationId": self.id,
            "summary": self.summary,
            "tags": [self.tag],
            "responses": operation.replies,
            "security": if self.is_guarded() { json!([{"adminToken": []}]) } else { json!([]) },
        });
        if !operation.parameters.is_empty() {
            document["parameters"] = json!(operation.parameters);
        }
        if let Some(body) = operation.body {
            document["requestBody"] = body;
        }
        document
    }
}

/// The answer, or that there was none in time: nobody knows then whether it was done.
async fn answered(within: Duration, answer: impl Future<Output = Response>) -> Response {
    match tokio::time::timeout(within, answer).await {
        Ok(response) => response,
        Err(_) => ApiError::unavailable().into_response(),
    }
}

/// The names in the braces of a path.
fn names_in(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// The schemas that the operations name. What is read and what is written of a type may differ, so
/// each has a generator.
pub(super) struct Schemas {
    taken: SchemaGenerator,
    given: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        Self {
            taken: settings().for_deserialize().into_generator(),
            given: settings().for_serialize().into_generator(),
        }
    }

    /// All of them by name, and the names that mean different things when read and when written.
    pub(super) fn into_components(mut self) -> (Map<String, Value>, Vec<String>) {
        let mut components = self.taken.take_definitions(false);
        let mut torn = Vec::new();
        for (name, schema) in self.given.take_definitions(false) {
            if components.get(&name).is_some_and(|taken| *taken != schema) {
                torn.push(name.clone());
            }
            components.insert(name, schema);
        }
        (components, torn)
    }
}

/// An operation while it is described.
pub(super) struct Operation<'a> {
    schemas: &'a mut Schemas,
    parameters: Vec<Value>,
    body: Option<Value>,
    /// Descriptions of the responses, by status.
    replies: BTreeMap<String, Value>,
}

impl<'a> Operation<'a> {
    fn new(schemas: &'a mut Schemas) -> Self {
        Self { schemas, parameters: Vec::new(), body: None, replies: BTreeMap::new() }
    }

    fn path_parameter(&mut self, name: &str) {
        let schema = match name {
            "account" => self.schemas.taken.subschema_for::<tollgate_ledger::AccountId>(),
            "key" => self.schemas.taken.subschema_for::<tollgate_ledger::KeyId>(),
            "task" => self.schemas.taken.subschema_for::<tollgate_ledger::TaskId>(),
            "request" => self.schemas.taken.subschema_for::<tollgate_ledger::RequestId>(),
            "hold" => self.schemas.taken.subschema_for::<tollgate_ledger::HoldId>(),
            "code" => self.schemas.taken.subschema_for::<tollgate_ledger::CodeId>(),
            "group" => json_schema!({"type": "string", "pattern": GROUP_PATTERN}),
            _ => self.schemas.taken.subschema_for::<String>(),
        };
        let parameter = json!({"name": name, "in": "path", "required": true, "schema": schema});
        self.parameters.push(parameter);
    }

    /// A header that may be sent.
    pub(super) fn header(&mut self, name: &str, description: &str, schema: &Value) {
        self.parameters.push(json!({
            "name": name,
            "in": "header",
            "required": false,
            "description": description,
            "schema": schema,
        }));
    }

    /// The fields of `T` as parameters of the query string.
    fn query<T: JsonSchema>(&mut self) {
        let mut schema = T::json_schema(&mut self.schemas.taken);
        WithoutNull.transform(&mut schema);
        let required = schema.get("required").cloned().unwrap_or_default();
        let Some(Value::Object(fields)) = schema.remove("properties") else { return };
        for (name, mut schema) in fields {
            let is_required = required.as_array().is_some_and(|all| all.contains(&json!(name)));
            let description = schema.as_object_mut().and_then(|all| all.remove("description"));
            let mut parameter =
                json!({"name": name, "in": "query", "required": is_required, "schema": schema});
            if let Some(description) = description {
                parameter["description"] = description;
            }
            self.parameters.push(parameter);
        }
    }

    /// Keeps the schema of something that an answer has in another form than as a whole.
    pub(super) fn name<T: JsonSchema>(&mut self) {
        self.schemas.given.subschema_for::<T>();
    }

    /// An answer in JSON.
    pub(super) fn reply<T: JsonSchema>(&mut self, status: StatusCode, description: &str) {
        let schema = self.schemas.given.subschema_for::<T>();
        self.reply_as(status, description, "application/json", &json!(schema));
    }

    /// An answer of another media type.
    pub(super) fn reply_as(
        &mut self,
        status: StatusCode,
        description: &str,
        media_type: &str,
        schema: &Value,
    ) {
        let headers = json!({"x-request-id": {"$ref": "#/components/headers/x-request-id"}});
        let reply = self.replies.entry(status.as_str().to_owned()).or_insert_with(
            || json!({"description": description, "headers": headers, "content": {}}),
        );
        reply["content"][media_type] = json!({"schema": schema});
    }

    /// An error in the envelope that all errors have.
    pub(super) fn refusal(&mut self, status: StatusCode, why: &str) {
        self.reply::<ErrorEnvelope>(status, why);
    }
}

/// A handler whose arguments and answer are described.
pub(super) trait DescribedHandler<Args> {
    fn describe(operation: &mut Operation<'_>);
}

/// Parameter of a handler, with its part of the OpenAPI document.
pub(super) trait HandlerInput {
    fn describe(operation: &mut Operation<'_>);
}

/// Result of a handler, with its part of the OpenAPI document.
pub(super) trait Output {
    fn describe(operation: &mut Operation<'_>);
}

macro_rules! described {
    ($($input:ident),*) => {
        impl<F, ApiResult, $($input),*> DescribedHandler<($($input,)*)> for F
        where
            F: Fn($($input),*) -> ApiResult,
            ApiResult: Future<Output: Output>,
            $($input: HandlerInput,)*
        {
            fn describe(operation: &mut Operation<'_>) {
                $($input::describe(operation);)*
                <ApiResult::Output as Output>::describe(operation);
            }
        }
    };
}

described!();
described!(A);
described!(A, B);
described!(A, B, C);
described!(A, B, C, D);

impl HandlerInput for State<AdminState> {
    fn describe(_: &mut Operation<'_>) {}
}

/// The names stand in the path; that there may be nothing by these names is told here.
impl<T> HandlerInput for Path<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.refusal(StatusCode::NOT_FOUND, "There is nothing with this id.");
    }
}

impl<T: JsonSchema> HandlerInput for Params<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.query::<T>();
        operation.refusal(StatusCode::BAD_REQUEST, "A value will not do; `param` names it.");
    }
}

impl<T: JsonSchema> HandlerInput for Body<T> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.schemas.taken.subschema_for::<T>();
        let content = json!({"application/json": {"schema": schema}});
        operation.body = Some(json!({"required": true, "content": content}));
        operation.refusal(StatusCode::BAD_REQUEST, "A value will not do; `param` names it.");
        operation.refusal(StatusCode::REQUEST_TIMEOUT, "The body took longer than 10 seconds.");
        operation.refusal(StatusCode::PAYLOAD_TOO_LARGE, "The body is larger than 1 MiB.");
    }
}

impl<T: JsonSchema> Output for Json<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.reply::<T>(StatusCode::OK, "Done.");
    }
}

impl<T: Output> Output for Result<T, ApiError> {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

/// An answer of plain text in UTF-8.
impl Output for &'static str {
    fn describe(operation: &mut Operation<'_>) {
        let text = json!({"type": "string"});
        operation.reply_as(StatusCode::OK, "Plain text.", "text/plain; charset=utf-8", &text);
    }
}
