//! The head of a request to an upstream: written out for the wire, or as a map for calls of the gateway's own.

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::{Error, ErrorType, OrErr, Result};

use crate::gateway::wire::framing;

/// Capacity for an ordinary head, in bytes, without the body behind it.
const HEAD_BYTES: usize = 1024;

/// A head of a request while its fields are added.
pub(crate) trait RequestHead: Sized {
    /// Begins the head of a `POST` to `path` over HTTP/1.1, with capacity for `fields` headers and, in one
    /// buffer, `body_bytes` of body.
    ///
    /// # Errors
    /// The path cannot stand in a head.
    fn begin(path: &str, fields: usize, body_bytes: usize) -> Result<Self>;

    /// Adds a field.
    ///
    /// # Errors
    /// The value cannot stand in a head.
    fn put(&mut self, name: &HeaderName, value: &[u8]) -> Result<()>;

    /// Completes the head.
    #[must_use]
    fn end(self) -> Self;
}

/// The head as it goes over the wire.
impl RequestHead for BytesMut {
    fn begin(path: &str, _fields: usize, body_bytes: usize) -> Result<Self> {
        begin_head(path, body_bytes)
    }

    fn put(&mut self, name: &HeaderName, value: &[u8]) -> Result<()> {
        put_line(self, name, value)
    }

    fn end(mut self) -> Self {
        self.extend_from_slice(b"\r\n");
        self
    }
}

/// The fields of the head.
impl RequestHead for HeaderMap {
    fn begin(_path: &str, fields: usize, _body_bytes: usize) -> Result<Self> {
        Ok(Self::with_capacity(fields))
    }

    fn put(&mut self, name: &HeaderName, value: &[u8]) -> Result<()> {
        let value = HeaderValue::from_bytes(value);
        let value = value.or_err(ErrorType::InternalError, "bad value of a header")?;
        self.append(name.clone(), value);
        Ok(())
    }

    fn end(self) -> Self {
        self
    }
}

/// The head of a request of the gateway's own with these `fields`, with room for `body_bytes` behind it:
/// `POST`, to `path`, over HTTP/1.1.
///
/// # Errors
/// When a value cannot stand in a head.
pub(crate) fn write_fields(path: &str, fields: &HeaderMap, body_bytes: usize) -> Result<BytesMut> {
    let mut head = begin_head(path, body_bytes)?;
    for (name, value) in fields {
        put_line(&mut head, name, value.as_bytes())?;
    }
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

fn begin_head(path: &str, body_bytes: usize) -> Result<BytesMut> {
    let mut head = BytesMut::with_capacity(HEAD_BYTES + body_bytes);
    // A space or a line end would begin another field, or another request.
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::explain(ErrorType::InternalError, "bad upstream path"));
    }
    for part in ["POST ", path, " HTTP/1.1\r\n"] {
        head.extend_from_slice(part.as_bytes());
    }
    Ok(head)
}

fn put_line(head: &mut BytesMut, name: &HeaderName, value: &[u8]) -> Result<()> {
    if !framing::is_value(value) {
        let cause = "bad value of an upstream's header";
        return Err(Error::explain(ErrorType::InternalError, cause));
    }
    for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
        head.extend_from_slice(part);
    }
    Ok(())
}
