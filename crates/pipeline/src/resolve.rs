//! Lookup of the requested model and of the key's permission to use it.

use std::borrow::Cow;
use std::sync::Arc;

use tollgate_config::snapshot::{Model, Snapshot, Target};
use tollgate_ledger::Key;
use tollgate_protocols::codec_choice::{CodecChoice, CodecKind};
use tollgate_protocols::json::JsonError;
use tollgate_protocols::{Dialect, Operation, Request, path_segment};
use tollgate_types::closest::closest;
use tollgate_types::error::{ErrorKind, GatewayError};

/// A request with its model.
#[derive(Debug)]
pub struct ResolvedRequest {
    /// Model named in the request.
    pub model: Arc<Model>,
    /// Model name from the request, if the model's id is a pattern.
    pub requested_name: Option<String>,
    /// Fallback models that this key may use, in order.
    pub fallbacks: Vec<Arc<Model>>,
    /// API key of the request.
    pub key: Arc<Key>,
    /// Operation that the request's path selects.
    pub operation: Operation,
    /// True if the native targets reject the request's content: only targets that need translation are
    /// used.
    pub is_bridged: bool,
}

impl ResolvedRequest {
    /// Model name at `target`.
    #[must_use]
    pub fn name_at<'a>(&'a self, target: &'a Target) -> &'a str {
        target.model.as_deref().or(self.requested_name.as_deref()).unwrap_or(&self.model.id)
    }

    /// True if `target` gets the model name that the customer sent.
    #[must_use]
    pub fn is_chosen_at(&self, target: &Target) -> bool {
        self.requested_name.is_some() && target.model.is_none()
    }

    /// Error for a model name that no upstream knows.
    #[must_use]
    pub fn unknown(&self) -> GatewayError {
        not_found(self.requested_name.as_deref().unwrap_or(&self.model.id), None)
    }

    /// Model of this rank: 0 is the requested one, followed by its fallbacks.
    #[must_use]
    pub fn model_at(&self, rank: usize) -> &Arc<Model> {
        let fallback = rank.checked_sub(1).and_then(|at| self.fallbacks.get(at));
        fallback.unwrap_or(&self.model)
    }

    /// Codecs, native and translating, for upstreams of the model of this rank that speak `dialect`.
    pub(super) fn codec_choice(&self, rank: usize, dialect: Dialect) -> CodecChoice<'_> {
        let Model { operations, limits, .. } = &**self.model_at(rank);
        CodecChoice { operation: self.operation, dialect, operations, limits }
    }

    /// Targets of the model of this rank that can serve the operation: native ones first, then those
    /// that need translation.
    pub fn targets(&self, rank: usize) -> impl Iterator<Item = (&Arc<Target>, CodecKind)> {
        let of_kind = move |kind: CodecKind| {
            let targets = self.model_at(rank).targets.iter();
            let fits = targets.filter(move |target| self.kind(rank, target) == Some(kind));
            fits.map(move |target| (target, kind))
        };
        of_kind(CodecKind::Native).chain(of_kind(CodecKind::Translated))
    }

    /// Distinct dialects of the targets of the model of this rank, in order.
    pub(super) fn dialects(&self, rank: usize) -> Vec<(CodecKind, Dialect)> {
        let mut dialects = Vec::with_capacity(1);
        for (target, kind) in self.targets(rank) {
            let access = (kind, target.upstream.dialect);
            if !dialects.contains(&access) {
                dialects.push(access);
            }
        }
        dialects
    }

    /// Access kind of a target of the model of this rank; `None` if it cannot serve the request.
    fn kind(&self, rank: usize, target: &Target) -> Option<CodecKind> {
        let kind = self.codec_choice(rank, target.upstream.dialect).kind()?;
        match kind {
            CodecKind::Native if rank == 0 && self.is_bridged => None,
            kind => Some(kind),
        }
    }

    /// True if a target could be used with a translation that supports audio and video, which chat
    /// completions have no common fields for.
    pub(super) fn can_be_bridged(&self) -> bool {
        let hears = |target: &Arc<Target>| {
            matches!(target.upstream.dialect, Dialect::Gemini | Dialect::Vertex)
        };
        self.operation == Operation::Chat
            && self.model.limits.translation.is_some()
            && !self.model.is_translated(self.operation)
            && self.model.targets.iter().any(hears)
    }
}

/// Longest model name for a pattern, in bytes: it is stored with tasks. Names in models.yaml have 128 at
/// most.
const NAME_BYTES_MAX: usize = 256;

/// Look up the `model` of a request.
///
/// # Errors
/// `InvalidRequest` without a model or with one of another kind, `ModelNotFound`, and
/// `PermissionDenied` when the key's list of models does not have it.
pub fn resolve(
    snapshot: &Snapshot,
    key: Arc<Key>,
    operation: Operation,
    request: &Request<'_>,
) -> Result<ResolvedRequest, GatewayError> {
    let missing = || {
        let error = GatewayError::invalid("model", "`model` must be a non-empty string");
        match operation.info().model_missing_code {
            Some(code) => error.code(code),
            None => error,
        }
    };
    let name =
        request.model()?.or_else(|| default_model(operation, request)).ok_or_else(missing)?;
    if name.is_empty() {
        return Err(missing());
    }
    if name.len() > NAME_BYTES_MAX {
        let message = format!("`model` must have at most {NAME_BYTES_MAX} bytes");
        return Err(GatewayError::invalid("model", message));
    }
    let Some(model) = snapshot.model(&name) else {
        return Err(not_found(&name, suggestion(snapshot, &key, operation, &name)));
    };
    // Upstreams put names into paths of their own, also where the gateway has them in the body.
    if model.is_wildcard() && !path_segment::is_safe(&name) {
        return Err(not_found(&name, None));
    }
    if !key.may_use(&name, &model.id) {
        let message = format!("This API key may not use the model `{name}`.");
        let error = GatewayError::new(ErrorKind::PermissionDenied, message);
        return Err(GatewayError { param: Some("model".into()), ..error });
    }
    if !model.serves(operation) {
        let kinds: Vec<_> = model.operations.iter().map(|operation| operation.as_str()).collect();
        let message = format!(
            "The model `{}` cannot be used for {operation}; it is for {}.",
            model.id,
            kinds.join(", ")
        );
        let error = GatewayError::invalid("model", message);
        return Err(match operation.info().model_mismatch_code {
            Some(code) => error.code(code),
            None => error,
        });
    }
    let requested_name = model.is_wildcard().then(|| name.into_owned());
    let fallbacks = fallbacks(snapshot, &key, operation, model);
    Ok(ResolvedRequest {
        model: Arc::clone(model),
        requested_name,
        fallbacks,
        key,
        operation,
        is_bridged: false,
    })
}

/// Default model of operations that have one, for requests without a model.
fn default_model(operation: Operation, request: &Request<'_>) -> Option<Cow<'static, str>> {
    let is_left_out = request.json().is_ok_and(|body| body.get_non_null("model").is_none());
    operation.default_model().filter(|_| is_left_out).map(Cow::Borrowed)
}

/// The models of the list of `model` that this key may use here. Their own lists do not count.
fn fallbacks(
    snapshot: &Snapshot,
    key: &Key,
    operation: Operation,
    model: &Model,
) -> Vec<Arc<Model>> {
    // What one model has summed up no other can read.
    if !operation.is_billed() || operation == Operation::Compact {
        return Vec::new();
    }
    let listed = model.fallbacks.iter().filter_map(|id| snapshot.model(id));
    let usable = listed.filter(|model| {
        // A model that is not served now may leave its name to a pattern.
        !model.is_wildcard() && model.serves(operation) && key.may_use(&model.id, &model.id)
    });
    usable.cloned().collect()
}

/// The model that was probably meant, of those that this key may use here.
fn suggestion<'a>(
    snapshot: &'a Snapshot,
    key: &Key,
    operation: Operation,
    name: &str,
) -> Option<&'a str> {
    let usable = snapshot.models.iter().filter(|model| {
        !model.is_wildcard() && model.serves(operation) && key.may_use(&model.id, &model.id)
    });
    closest(name, usable.map(|model| &*model.id))
}

fn not_found(name: &str, suggestion: Option<&str>) -> GatewayError {
    // The name comes from outside: quoted, escaped and cut before it goes into a message.
    let shown: String = name.chars().take(64).collect();
    let suggestion =
        suggestion.map(|suggestion| format!(" Did you mean `{suggestion}`?")).unwrap_or_default();
    let message = format!(
        "The model {shown:?} does not exist.{suggestion} `GET /v1/models` lists those that do."
    );
    let error = GatewayError::new(ErrorKind::ModelNotFound, message);
    GatewayError { param: Some("model".into()), ..error }
}

/// A body that is not acceptable JSON, as an answer.
#[must_use]
pub fn bad_json(error: &JsonError) -> GatewayError {
    GatewayError::new(
        ErrorKind::InvalidRequest,
        format!("The request body is not acceptable JSON: {error}."),
    )
}
