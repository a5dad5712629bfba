//! Which model is meant, and whether this key may use it here.

use std::sync::Arc;

use crate::config::snapshot::{Model, Snapshot, Target};
use crate::error::{ErrorKind, GatewayError};
use crate::ledger::Key;
use crate::protocols::json::JsonError;
use crate::protocols::{self, Codec, Operation, Request};

/// A request whose model is known.
#[derive(Debug)]
pub struct Resolved {
    /// The model.
    pub model: Arc<Model>,
    /// The name that the customer used, where the model's id is a pattern.
    pub asked: Option<String>,
    /// Who asks.
    pub key: Arc<Key>,
    /// What is asked.
    pub operation: Operation,
}

impl Resolved {
    /// What `target` calls the model.
    #[must_use]
    pub fn name_at<'a>(&'a self, target: &'a Target) -> &'a str {
        target.model.as_deref().or(self.asked.as_deref()).unwrap_or(&self.model.id)
    }

    /// The targets that this build can serve the operation over, with their codecs, best first.
    pub fn targets(&self) -> impl Iterator<Item = (&Arc<Target>, &'static dyn Codec)> {
        let targets = self.model.targets.iter();
        targets.filter_map(|target| Some((target, codec_for(self.operation, target)?)))
    }
}

/// The codec that speaks `operation` to the target.
pub(super) fn codec_for(operation: Operation, target: &Target) -> Option<&'static dyn Codec> {
    protocols::codec(operation, target.upstream.dialect)
}

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
    let name = request.model()?.ok_or_else(missing)?;
    if name.is_empty() {
        return Err(missing());
    }
    let Some(model) = snapshot.model(&name) else {
        // The name comes from outside: quoted, escaped and cut before it goes into a message.
        let shown: String = name.chars().take(64).collect();
        let message =
            format!("The model {shown:?} does not exist. `GET /v1/models` lists those that do.");
        let error = GatewayError::new(ErrorKind::ModelNotFound, message);
        return Err(GatewayError { param: Some("model".into()), ..error });
    };
    if !key.may_use(&name, &model.id) {
        let message = format!("This API key may not use the model `{name}`.");
        let error = GatewayError::new(ErrorKind::PermissionDenied, message);
        return Err(GatewayError { param: Some("model".into()), ..error });
    }
    if !model.operations.contains(&operation.granted_by()) {
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
    Ok(Resolved { model: Arc::clone(model), asked, key, operation })
}

/// A body that is not acceptable JSON, as an answer.
#[must_use]
pub fn bad_json(error: &JsonError) -> GatewayError {
    GatewayError::new(
        ErrorKind::InvalidRequest,
        format!("The request body is not acceptable JSON: {error}."),
    )
}
