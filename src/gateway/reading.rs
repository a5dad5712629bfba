//! Reading a body as its operation has it: JSON when it is there, a form while it arrives.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

use crate::error::GatewayError;
use crate::pipeline;
use crate::protocols::form::{Boundary, FormScan};
use crate::protocols::json::Object;
use crate::protocols::{Operation, Request};

/// A body that is being read.
pub(super) enum Reading {
    /// JSON, which is looked at when it is whole.
    Json,
    /// A form, which is refused as soon as it is wrong.
    Form(Box<FormScan>),
}

impl Reading {
    /// Begins to read a request for `operation`.
    ///
    /// # Errors
    /// A form without a boundary that everyone reads alike.
    pub(super) fn of(operation: Operation, headers: &HeaderMap) -> Result<Self, GatewayError> {
        if !operation.takes_form() {
            return Ok(Self::Json);
        }
        let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        Ok(Self::Form(Box::new(FormScan::new(Boundary::of(content_type)?))))
    }

    /// Goes on with all of the body that has arrived.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn feed(&mut self, whole: &[u8]) -> Result<(), GatewayError> {
        match self {
            Self::Json => Ok(()),
            Self::Form(scan) => Ok(scan.feed(whole)?),
        }
    }

    /// The body has ended, and is `whole`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn finish(self, whole: &[u8]) -> Result<Request<'_>, GatewayError> {
        match self {
            Self::Json => {
                let object = Object::parse(whole).map_err(|error| pipeline::bad_json(&error))?;
                Ok(Request::Json(object))
            }
            Self::Form(scan) => Ok(Request::Form(scan.finish(whole)?, whole)),
        }
    }
}
