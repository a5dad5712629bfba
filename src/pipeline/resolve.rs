//! Which model is meant, and whether this key may use it here.

use std::borrow::Cow;
use std::sync::Arc;

use crate::closest::closest;
use crate::config::snapshot::{Model, Snapshot, Target};
use crate::error::{ErrorKind, GatewayError};
use crate::ledger::Key;
use crate::protocols::codec_choice::{CodecChoice, CodecKind};
use crate::protocols::json::JsonError;
use crate::protocols::{Dialect, Operation, Request, path_segment};

/// A request whose model is known.
#[derive(Debug)]
pub struct Resolved {
    /// The model that the request names.
    pub model: Arc<Model>,
    /// The name that the customer used, where the model's id is a pattern.
    pub asked: Option<String>,
    /// The models that may serve it where that one cannot, in order: those that this key may use here.
    pub fallbacks: Vec<Arc<Model>>,
    /// The key of the customer who asks.
    pub key: Arc<Key>,
    /// The operation that is asked for.
    pub operation: Operation,
    /// The model's targets that speak the operation themselves do not take what is in the request: those
    /// that speak another are asked, with a translation.
    pub is_bridged: bool,
}

impl Resolved {
    /// What `target` calls the model.
    #[must_use]
    pub fn name_at<'a>(&'a self, target: &'a Target) -> &'a str {
        target.model.as_deref().or(self.asked.as_deref()).unwrap_or(&self.model.id)
    }

    /// Whether what `target` is asked for is the name that the customer used.
    #[must_use]
    pub fn is_chosen_at(&self, target: &Target) -> bool {
        self.asked.is_some() && target.model.is_none()
    }

    /// The answer to a name that no upstream knows.
    #[must_use]
    pub fn unknown(&self) -> GatewayError {
        not_found(self.asked.as_deref().unwrap_or(&self.model.id), None)
    }

    /// The model of this rank: 0 is the one that the request names, and its fallbacks follow.
    #[must_use]
    pub fn model_at(&self, rank: usize) -> &Arc<Model> {
        let fallback = rank.checked_sub(1).and_then(|at| self.fallbacks.get(at));
        fallback.unwrap_or(&self.model)
    }

    /// The ways to ask upstreams of the model of this rank that speak `dialect`.
    pub(super) fn codec_choice(&self, rank: usize, dialect: Dialect) -> CodecChoice<'_> {
        let Model { operations, limits, .. } = &**self.model_at(rank);
        CodecChoice { operation: self.operation, dialect, operations, limits }
    }

    /// The targets of the model of this rank that this build can serve the operation over, best first:
    /// those that speak it, and behind them those that it is translated for.
    pub fn targets(&self, rank: usize) -> impl Iterator<Item = (&Arc<Target>, CodecKind)> {
        let of_kind = move |kind: CodecKind| {
            let targets = self.model_at(rank).targets.iter();
            let fits = targets.filter(move |target| self.kind(rank, target) == Some(kind));
            fits.map(move |target| (target, kind))
        };
        of_kind(CodecKind::Native).chain(of_kind(CodecKind::Translated))
    }

    /// The dialects of the targets of the model of this rank, each once, in their order.
    pub(super) fn dialects(&self, rank: usize) -> Vec<(CodecKind, Dialect)> {
        let mut dialects = Vec::with_capacity(1);
        for (target, kind) in self.targets(rank) {
            let way = (kind, target.upstream.dialect);
            if !dialects.contains(&way) {
                dialects.push(way);
            }
        }
        dialects
    }

    /// The way to a target of the model of this rank; `None` where the request does not get there.
    fn kind(&self, rank: usize, target: &Target) -> Option<CodecKind> {
        let kind = self.codec_choice(rank, target.upstream.dialect).kind()?;
        match kind {
            CodecKind::Native if rank == 0 && self.is_bridged => None,
            kind => Some(kind),
        }
    }

    /// Whether a target could be asked with a translation that takes sound and videos, which chat
    /// completions have no common words for.
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

/// The longest name of a model, in bytes: one that a wildcard takes is kept with a task. Those in
/// models.yaml have 128 at most.
const NAME_BYTES_MAX: usize = 256;

/// Looks the request's `model` up.
///
/// # Errors
/// `InvalidRequest` without a model or with one of another kind, `ModelNotFound`, and
/// `PermissionDenied` when the key's list of models does not have it.
pub fn resolve(
    snapshot: &Snapshot,
    key: Arc<Key>,
    operation: Operation,
    request: &Request<'_>,
) -> Result<Resolved, GatewayError> {
    let missing = || {
        let error = GatewayError::invalid("model", "`model` must be a non-empty string");
        match operation {
            Operation::Video => error.code("InvalidParameter.MissingRequired"),
            _ => error,
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
        return Err(not_found(&name, meant(snapshot, &key, operation, &name)));
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
        return Err(match operation {
            Operation::Speech => error.code("endpoint_model_mismatch"),
            _ => error,
        });
    }
    let asked = model.is_wildcard().then(|| name.into_owned());
    let fallbacks = fallbacks(snapshot, &key, operation, model);
    Ok(Resolved { model: Arc::clone(model), asked, fallbacks, key, operation, is_bridged: false })
}

/// The model that is meant where a request names none, for operations that have one.
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
fn meant<'a>(
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

fn not_found(name: &str, meant: Option<&str>) -> GatewayError {
    // The name comes from outside: quoted, escaped and cut before it goes into a message.
    let shown: String = name.chars().take(64).collect();
    let meant = meant.map(|meant| format!(" Did you mean `{meant}`?")).unwrap_or_default();
    let message =
        format!("The model {shown:?} does not exist.{meant} `GET /v1/models` lists those that do.");
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
