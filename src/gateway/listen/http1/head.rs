//! From the bytes of a head that is sound to Pingora's own type for it.

use bytes::BytesMut;
use http::{HeaderMap, HeaderValue, Method, Request, Version};
use pingora::http::RequestHeader;

use super::request_body::UnreadBody;
use crate::error::GatewayError;
use crate::gateway::wire::framing::{self, RequestLine};

/// A request's head that was read and found sound, and what came with it.
pub(crate) struct CheckedHead {
    pub(super) request: RequestHeader,
    pub(super) body: UnreadBody,
    /// True if the connection can serve another request after this one.
    pub(super) keeps: bool,
}

impl CheckedHead {
    /// Reads the head in the first `head_bytes` of `bytes`, which has `fields` fields; what stands behind belongs
    /// to the body.
    ///
    /// # Errors
    /// What is wrong with the head, or with what has come of a body in chunks.
    pub(crate) fn read(
        mut bytes: BytesMut,
        head_bytes: usize,
        fields: usize,
    ) -> Result<Box<Self>, GatewayError> {
        let begun = bytes.split_off(head_bytes.min(bytes.len()));
        let bytes = bytes.freeze();
        let line = RequestLine::read(&bytes)?;
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = Method::from_bytes(line.method).map_err(|_| framing::malformed_line())?;
        parts.version = if line.is_http_10 { Version::HTTP_10 } else { Version::HTTP_11 };
        // Each has 104 bytes there, for as long as the request lasts.
        parts.headers = HeaderMap::with_capacity(fields);
        let (target, fields) = (line.target, &mut parts.headers);
        let framed = line.check_fields(|name, value| {
            // Visible ASCII, blanks, and the bytes above ASCII that RFC 9110, section 5.5, puts up with.
            let value = HeaderValue::from_maybe_shared(bytes.slice_ref(value));
            fields.append(name, value.map_err(|_| framing::malformed_value())?);
            Ok(())
        })?;
        let mut request = RequestHeader::from(parts);
        // What is read of a target is what Pingora's own sessions read.
        request.set_raw_path(target).map_err(|_| framing::malformed_line())?;
        let body = UnreadBody::new(framed.body, begun)?;
        Ok(Box::new(Self { request, body, keeps: framed.keeps }))
    }

    /// Closes the connection after the answer.
    pub(crate) fn close_behind(&mut self) {
        self.keeps = false;
    }
}
