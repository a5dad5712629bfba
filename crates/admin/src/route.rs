//! One entry of the admin API's table: a path, its handler, and what a document says of both.
//!
//! What a handler takes and gives is read off its signature: an entry cannot say another thing than
//! the code does, and a handler whose types are not described cannot be entered.

use std::future::Future;
use std::time::Duration;

use axum::extract::Request;
use axum::handler::Handler;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use serde_json::{Value, json};

use super::AdminState;
use super::description::{DescribedHandler, Operation, Schemas};
use super::error::ApiError;

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
    /// Section of the documentation.
    tag: &'static str,
    describe: fn(&mut Operation<'_>),
    /// Errors that the handler's types do not declare.
    refusals: Vec<(StatusCode, &'static str)>,
    /// Time limit of the handler's answer.
    within: Duration,
    service: MethodRouter<AdminState>,
}

/// Title of an entry: its name, its chapter and its summary.
pub(super) struct Title(pub(super) &'static str, pub(super) &'static str, pub(super) &'static str);

macro_rules! methods {
    ($($function:ident: $method:ident;)+) => {$(
        #[doc = concat!("An entry for ", stringify!($method), ".")]
        pub(super) fn $function<H, T, Args>(
            path: &'static str,
            title: Title,
            handler: H,
        ) -> AdminRoute
        where
            H: Handler<T, AdminState> + DescribedHandler<Args>,
            T: 'static,
        {
            AdminRoute::new(Method::$method, MethodFilter::$method, path, title, handler)
        }
    )+};
}

methods! {
    get: GET;
    post: POST;
    patch: PATCH;
    put: PUT;
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

    /// Sets a timeout instead of the default one.
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
                "The gateway failed; its log has the cause.",
            );
            operation.refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                "The ledger did not confirm in time, or is shutting down.",
            );
        }
        // The handler comes before the general refusals of 429: where both refuse with one status, its
        // description counts.
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
