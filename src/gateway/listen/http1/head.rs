//! From the bytes of a head that is sound to Pingora's own type for it.

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Version};
use pingora::http::RequestHeader;

use super::request_body::RequestBody;
use crate::error::GatewayError;
use crate::gateway::listen::framing::{self, RequestLine};

/// Room for the fields of a head, of which SDKs send some ten and proxies add a few.
const FIELDS: usize = 16;

/// A request's head that was read and found sound, and what came with it.
pub(crate) struct Head {
    pub(super) request: RequestHeader,
    pub(super) body: RequestBody,
    /// Whether the connection can have another request behind this one.
    pub(super) keeps: bool,
}

impl Head {
    /// Reads the head in the first `head_bytes` of `bytes`; what stands behind belongs to the body.
    ///
    /// # Errors
    /// What is wrong with the head, or with what has come of a body in chunks.
    pub(crate) fn read(mut bytes: BytesMut, head_bytes: usize) -> Result<Box<Self>, GatewayError> {
        let begun = bytes.split_off(head_bytes.min(bytes.len()));
        let bytes = bytes.freeze();
        let line = RequestLine::read(&bytes)?;
        // Pingora reads the same of a target as its own sessions do.
        let mut request = RequestHeader::build_no_case(line.method, line.target, Some(FIELDS))
            .map_err(|_| framing::malformed_line())?;
        request.set_version(if line.is_http_10 { Version::HTTP_10 } else { Version::HTTP_11 });
        let framed =
            line.check_fields(|name, value| put(&mut request, name, bytes.slice_ref(value)))?;
        let body = RequestBody::new(framed.body, begun)?;
        Ok(Box::new(Self { request, body, keeps: framed.keeps }))
    }

    /// Has the connection closed behind the answer.
    pub(crate) fn close_behind(&mut self) {
        self.keeps = false;
    }
}

/// Appends a field. Its name and its value were checked by stricter rules.
fn put(request: &mut RequestHeader, name: &[u8], value: Bytes) -> Result<(), GatewayError> {
    let name = HeaderName::from_bytes(name).map_err(|_| framing::malformed_field())?;
    let value = HeaderValue::from_maybe_shared(value).map_err(|_| framing::malformed_field())?;
    request.append_header(name, value).map_err(|_| framing::too_many_fields())?;
    Ok(())
}
