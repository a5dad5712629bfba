//! The body of a request before a codec reads it: a JSON object or a form, with the model that it names.

use std::borrow::Cow;

use super::form::Form;
use super::json::Object;
use tollgate_types::error::{ErrorKind, GatewayError};

/// Model and streaming flag from the path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelInPath<'a> {
    /// The model, as the customer calls it.
    pub model: &'a str,
    /// The answer is streamed.
    pub streams: bool,
}

/// A request's body, as its operation has it.
#[derive(Debug)]
pub enum Request<'a> {
    /// A JSON object, as most operations have it.
    Json(Object<'a>),
    /// A JSON object whose path contains the model.
    JsonAt(Object<'a>, ModelInPath<'a>),
    /// A form, and the body in which its parts stand.
    Form(Form, &'a [u8]),
}

impl<'a> Request<'a> {
    /// The JSON object.
    ///
    /// # Errors
    /// An unsupported media type, for a body of another kind.
    pub fn json(&self) -> Result<&Object<'a>, GatewayError> {
        match self {
            Self::Json(object) | Self::JsonAt(object, _) => Ok(object),
            Self::Form(..) => Err(unreadable("JSON")),
        }
    }

    /// The form, and the body in which its parts stand.
    ///
    /// # Errors
    /// An unsupported media type, for a body of another kind.
    pub fn form(&self) -> Result<(&Form, &'a [u8]), GatewayError> {
        match self {
            Self::Form(form, body) => Ok((form, body)),
            Self::Json(_) | Self::JsonAt(..) => Err(unreadable("multipart/form-data")),
        }
    }

    /// Model and streaming flag from the path, for operations that have them there.
    #[must_use]
    pub fn model_in_path(&self) -> Option<ModelInPath<'a>> {
        match self {
            Self::JsonAt(_, named) => Some(*named),
            Self::Json(_) | Self::Form(..) => None,
        }
    }

    /// The model that it names, if it names one.
    ///
    /// # Errors
    /// For a form that names two.
    pub fn model(&self) -> Result<Option<Cow<'a, str>>, GatewayError> {
        Ok(match self {
            Self::Json(object) => object.get("model").and_then(|value| value.as_str()),
            Self::JsonAt(_, named) => Some(Cow::Borrowed(named.model)),
            Self::Form(form, body) => form.text(body, "model")?.map(Cow::Borrowed),
        })
    }
}

fn unreadable(expected: &str) -> GatewayError {
    let message = format!("The request body must be {expected}.");
    GatewayError::new(ErrorKind::UnsupportedMediaType, message)
}
