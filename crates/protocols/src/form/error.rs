//! Reasons for refusing a form, worded for the customer.

use std::fmt;

use tollgate_types::error::{ErrorKind, GatewayError};

use super::{HEAD_BYTES_MAX, HEADER_LINES_MAX, PARTS_MAX};

/// Reason why a body is not an acceptable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormError {
    /// The `Content-Type` is not `multipart/form-data`.
    NotForm,
    /// The parameters of the `Content-Type` cannot be read, or not by everyone alike.
    ContentType,
    /// The `Content-Type` names no boundary.
    BoundaryMissing,
    /// The boundary is empty, too long, or has characters that a boundary must not have.
    Boundary,
    /// The form is in an encoding other than UTF-8.
    Charset,
    /// The first boundary does not begin a line.
    Preamble,
    /// The boundary stands once more behind the last one, or no CRLF ends that one's line.
    Epilogue,
    /// The boundary that the `Content-Type` names is nowhere in the body.
    BoundaryAbsent,
    /// The last boundary did not come.
    Unfinished,
    /// A line begins with the boundary and goes on.
    BoundaryLine,
    /// A part's content begins with the boundary: some would read no content, and the next part.
    BlankLine,
    /// The boundary stands behind a bare CR or LF.
    LineEnd,
    /// The form has more than [`PARTS_MAX`] parts.
    TooManyParts,
    /// Headers of a part longer than [`HEAD_BYTES_MAX`].
    HeadTooLong,
    /// More than [`HEADER_LINES_MAX`] headers in a part.
    TooManyHeaders,
    /// A header is not `Name: value` on one line, without control characters.
    Header,
    /// A part has this header twice.
    HeaderTwice(&'static str),
    /// A part has no `Content-Disposition`, or one that cannot be read, or not by everyone alike.
    Disposition,
    /// A part's `Content-Disposition` has this parameter twice.
    ParameterTwice(&'static str),
    /// A part's name is empty.
    EmptyName,
    /// A part's name is written in a way that only some decode.
    EncodedName,
    /// The content of this part is compressed or transfer-encoded.
    EncodedContent(String),
    /// This part is itself a multipart.
    Nested(String),
    /// This part does not have the `Content-Length` that its headers state.
    ContentLength(String),
    /// This field occurs more than once.
    FieldTwice(String),
    /// This text field was sent as a file.
    FieldIsFile(String),
    /// This text field is not text.
    NotText(String),
}

impl FormError {
    /// The field that it is about, if it is about one.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::EncodedContent(name)
            | Self::Nested(name)
            | Self::ContentLength(name)
            | Self::FieldTwice(name)
            | Self::FieldIsFile(name)
            | Self::NotText(name) => Some(name),
            _ => None,
        }
    }
}

impl fmt::Display for FormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::NotForm => "the Content-Type must be multipart/form-data",
            Self::ContentType => "the parameters of the Content-Type are malformed",
            Self::BoundaryMissing => "the Content-Type names no boundary",
            Self::Boundary => "the boundary must be 1 to 70 letters, digits or '()+_,-./:=? signs",
            Self::Charset => "the form must be in UTF-8",
            Self::Preamble => "text before the first boundary must end with CRLF and not have it",
            Self::Epilogue => "text behind the last boundary must begin with CRLF and not have it",
            Self::BoundaryAbsent => "the boundary of the Content-Type is nowhere in the form",
            Self::Unfinished => "the form ends before its last boundary",
            Self::BoundaryLine => "a line that begins with the boundary must end right behind it",
            Self::BlankLine => "the boundary stands where a part's content begins",
            Self::LineEnd => "the boundary stands behind a bare CR or LF; lines end with CRLF",
            Self::TooManyParts => return write!(f, "the form has more than {PARTS_MAX} parts"),
            Self::HeadTooLong => {
                return write!(f, "the headers of a part are longer than {HEAD_BYTES_MAX} bytes");
            }
            Self::TooManyHeaders => {
                return write!(f, "a part of the form has more than {HEADER_LINES_MAX} headers");
            }
            Self::Header => "a header of a part is not one line `Name: value`, ended with CRLF",
            Self::HeaderTwice(header) => return write!(f, "a part has two {header} headers"),
            Self::Disposition => {
                "each part must have one `Content-Disposition: form-data; name=\"...\"`, name first"
            }
            Self::ParameterTwice(parameter) => {
                return write!(f, "the Content-Disposition of a part has two of `{parameter}`");
            }
            Self::EmptyName => "a part of the form has an empty name",
            Self::EncodedName => "the names of fields must be plain UTF-8, without any encoding",
            Self::EncodedContent(name) => {
                return write!(f, "`{name}` must be sent as it is, not compressed or encoded");
            }
            Self::Nested(name) => return write!(f, "`{name}` must not be a multipart itself"),
            Self::ContentLength(name) => {
                return write!(f, "`{name}` does not have the Content-Length that it states");
            }
            Self::FieldTwice(name) => return write!(f, "`{name}` must be given only once"),
            Self::FieldIsFile(name) => return write!(f, "`{name}` must be a text, not a file"),
            Self::NotText(name) => return write!(f, "`{name}` must be text in UTF-8"),
        };
        f.write_str(words)
    }
}

impl From<FormError> for GatewayError {
    fn from(error: FormError) -> Self {
        let kind = match error {
            FormError::NotForm => ErrorKind::UnsupportedMediaType,
            _ => ErrorKind::InvalidRequest,
        };
        let message = format!("The form is not acceptable: {error}.");
        Self { param: error.field().map(|name| name.to_owned().into()), ..Self::new(kind, message) }
    }
}
