//! The head of an answer while it is being made: Pingora's own parses the name of each header that is
//! put into it.

use http::{HeaderMap, HeaderValue, StatusCode};

use crate::ids::RequestId;

/// Status, version and headers of an answer, over HTTP/1.1 unless something else is said.
pub(crate) type AnswerHead = http::response::Parts;

/// Room for the headers of an answer of the gateway's own.
const FIELDS: usize = 16;

/// The head of an answer with this status, from 100 to 999, without any header.
pub(crate) fn of(status: u16) -> AnswerHead {
    let (mut head, ()) = http::Response::new(()).into_parts();
    head.status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    head.headers = HeaderMap::with_capacity(FIELDS);
    head
}

/// A request's id as the value of a header.
pub(crate) fn id(id: RequestId) -> HeaderValue {
    // It is made of letters and digits.
    HeaderValue::from_bytes(&id.ascii()).unwrap_or(HeaderValue::from_static(""))
}
