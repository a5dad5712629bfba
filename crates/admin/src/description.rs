//! Descriptions of handlers: their parameters, bodies and responses, read off their signatures.

use std::collections::BTreeMap;
use std::future::Future;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::generate::SchemaSettings;
use schemars::transform::Transform as _;
use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::AdminState;
use super::error::{ApiError, ErrorEnvelope};
use super::value::GROUP_PATTERN;
use tollgate_config::WithoutNull;

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
            // A document has one schema for each name; a test fails when two differ.
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
    pub(super) parameters: Vec<Value>,
    pub(super) body: Option<Value>,
    /// Descriptions of the responses, by status.
    pub(super) replies: BTreeMap<String, Value>,
}

impl<'a> Operation<'a> {
    pub(super) fn new(schemas: &'a mut Schemas) -> Self {
        Self { schemas, parameters: Vec::new(), body: None, replies: BTreeMap::new() }
    }

    /// A parameter of the path, with the schema of its name.
    pub(super) fn path_parameter(&mut self, name: &str) {
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

    /// Declares an optional header.
    pub(super) fn header(&mut self, name: &str, description: &str, schema: &Value) {
        self.parameters.push(json!({
            "name": name,
            "in": "header",
            "required": false,
            "description": description,
            "schema": schema,
        }));
    }

    /// The request body, as JSON.
    pub(super) fn json_body<T: JsonSchema>(&mut self) {
        let schema = self.schemas.taken.subschema_for::<T>();
        let content = json!({"application/json": {"schema": schema}});
        self.body = Some(json!({"required": true, "content": content}));
    }

    /// The fields of `T` as parameters of the query string.
    pub(super) fn query<T: JsonSchema>(&mut self) {
        let mut schema = T::json_schema(&mut self.schemas.taken);
        // A query string has no null: an optional parameter is left out.
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

/// A handler that describes its arguments and its answer for the OpenAPI document.
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
