//! Parsing of request bodies: JSON once it is complete, a form while it arrives.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

use crate::error::GatewayError;
use crate::pipeline;
use crate::protocols::form::{Boundary, FormError, FormScan};
use crate::protocols::json::Object;
use crate::protocols::{Operation, Request};

/// State of reading a body.
pub(crate) enum BodyReading {
    /// JSON, which is parsed when it is complete.
    Json,
    /// A form, which is refused as soon as it is wrong.
    Form(Box<FormScan>),
}

impl BodyReading {
    /// Begins to read a request for `operation`.
    ///
    /// # Errors
    /// A form without a boundary that everyone reads alike.
    pub(crate) fn new(operation: Operation, headers: &HeaderMap) -> Result<Self, GatewayError> {
        if !operation.takes_form() {
            return Ok(Self::Json);
        }
        let mut types = headers.get_all(CONTENT_TYPE).iter();
        let content_type = types.next().map_or(&b""[..], |value| value.as_bytes());
        if types.next().is_some() {
            // Two parsers may choose different ones.
            return Err(FormError::ContentType.into());
        }
        Ok(Self::Form(Box::new(FormScan::new(Boundary::from_content_type(content_type)?))))
    }

    /// Continues with all of the body that has arrived.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn feed(&mut self, whole: &[u8]) -> Result<(), GatewayError> {
        match self {
            Self::Json => Ok(()),
            Self::Form(scan) => Ok(scan.feed(whole)?),
        }
    }

    /// Ends the body, which is `whole`.
    ///
    /// # Errors
    /// What is wrong with it, such as more values than JSON may have here.
    pub(crate) fn finish(
        self,
        whole: &[u8],
        json_values_max: usize,
    ) -> Result<Request<'_>, GatewayError> {
        match self {
            Self::Json => {
                let object = Object::parse_within(whole, json_values_max);
                Ok(Request::Json(object.map_err(|error| pipeline::bad_json(&error))?))
            }
            Self::Form(scan) => Ok(Request::Form(scan.finish(whole)?, whole)),
        }
    }
}
