//! Whether the request is one that the model can be asked, and what it can use at most.

use crate::error::{ErrorKind, GatewayError};
use crate::pipeline::Resolved;
use crate::protocols::{Call, Request};

/// A request that was found valid.
#[derive(Debug)]
pub struct Validated {
    /// What came before.
    pub resolved: Resolved,
    /// What its protocol says about it.
    pub call: Box<dyn Call>,
}

/// Lets the protocol of the model's first target read the request.
///
/// # Errors
/// `InvalidRequest`, naming the field; `UpstreamUnavailable` for a model without a target.
pub fn validate(resolved: Resolved, request: &Request<'_>) -> Result<Validated, GatewayError> {
    let Some((_, codec)) = resolved.targets().next() else {
        let message = "No upstream serves this model at the moment.";
        return Err(GatewayError::new(ErrorKind::UpstreamUnavailable, message));
    };
    let call = codec.read(request, &resolved.model.limits)?;
    Ok(Validated { resolved, call })
}
