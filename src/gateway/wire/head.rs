//! The head of an answer while it is being made, and on its way to the customer.
//!
//! It has a dozen fields. So many are found sooner by looking at each than by a hash of their name, and a
//! map of them, which Pingora's type has, would be made for it only to be written out again at once.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use pingora::http::ResponseHeader;
use pingora_proxy::Session;

use crate::ids::RequestId;

/// The header that names the request; SDKs show it as the request id.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The header that names the request for Anthropic's SDKs.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// Header that prevents browsers from guessing another content type.
pub(crate) const NO_SNIFFING: (HeaderName, HeaderValue) =
    (http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
/// Room for the headers of nearly all answers.
const FIELDS: usize = 12;

/// Status and headers of an answer, over whichever version of HTTP.
#[derive(Debug)]
pub(crate) struct AnswerHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: AnswerHeaders,
}

impl AnswerHead {
    /// True if the status allows a body.
    pub(crate) fn may_have_body(&self) -> bool {
        !matches!(self.status.as_u16(), 204 | 304)
    }

    /// True for a switch of protocols.
    pub(crate) fn switches_protocols(&self) -> bool {
        self.status == StatusCode::SWITCHING_PROTOCOLS
    }

    /// True if no other head follows.
    pub(crate) fn is_final(&self) -> bool {
        !self.status.is_informational() || self.switches_protocols()
    }
}

/// The headers of an answer, in the order in which they are sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerHeaders(Vec<(HeaderName, HeaderValue)>);

impl AnswerHeaders {
    /// Iterates over all headers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// The values of those with this name.
    pub(crate) fn get_all(&self, name: &HeaderName) -> impl Iterator<Item = &HeaderValue> {
        self.0.iter().filter_map(move |(found, value)| (found == name).then_some(value))
    }

    /// The value of the first with this name.
    pub(crate) fn get(&self, name: &HeaderName) -> Option<&HeaderValue> {
        self.get_all(name).next()
    }

    /// True if there is a header of this name.
    pub(crate) fn contains(&self, name: &HeaderName) -> bool {
        self.get(name).is_some()
    }

    /// Adds a header, in addition to others of its name.
    pub(crate) fn append(&mut self, name: HeaderName, value: HeaderValue) {
        self.0.push((name, value));
    }

    /// Sets a header, replacing others of its name.
    pub(crate) fn insert(&mut self, name: HeaderName, value: HeaderValue) {
        self.remove(&name);
        self.append(name, value);
    }

    /// Removes the headers of this name; true if there were any.
    pub(crate) fn remove(&mut self, name: &HeaderName) -> bool {
        let is_there = self.contains(name);
        if is_there {
            self.0.retain(|(found, _)| found != name);
        }
        is_there
    }

    /// Removes the headers for which `keeps` is false.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&HeaderName, &HeaderValue) -> bool) {
        self.0.retain(|(name, value)| keeps(name, value));
    }
}

/// Converts Pingora's response head, as [`write`] filled it, for the gateway's own sessions.
impl From<ResponseHeader> for AnswerHead {
    fn from(header: ResponseHeader) -> Self {
        let mut parts = http::response::Parts::from(header);
        let headers = parts.extensions.remove().unwrap_or_else(|| parts.headers.into());
        Self { status: parts.status, headers }
    }
}

impl From<AnswerHeaders> for HeaderMap {
    fn from(headers: AnswerHeaders) -> Self {
        headers.0.into_iter().collect()
    }
}

impl From<HeaderMap> for AnswerHeaders {
    fn from(map: HeaderMap) -> Self {
        let (mut headers, mut name_of_all) = (Self::default(), None);
        for (name, value) in map {
            // Of several values with one name only the first has it.
            name_of_all = name.or(name_of_all);
            if let Some(name) = &name_of_all {
                headers.append(name.clone(), value);
            }
        }
        headers
    }
}

/// The head of an answer with this status, from 100 to 999, without any header.
pub(crate) fn of(status: u16) -> AnswerHead {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    AnswerHead { status, headers: AnswerHeaders(Vec::with_capacity(FIELDS)) }
}

/// A request's id as the value of a header.
pub(crate) fn id(id: RequestId) -> HeaderValue {
    // It is made of letters and digits.
    HeaderValue::from_bytes(&id.ascii()).unwrap_or(HeaderValue::from_static(""))
}

/// Digits and letters as the value of a header.
pub(crate) fn text(value: String) -> HeaderValue {
    HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static(""))
}

/// Whole milliseconds, rounded up: who waits for them has waited long enough.
pub(crate) fn millis_up(duration: Duration) -> u128 {
    duration.as_nanos().div_ceil(1_000_000)
}

/// True once the final response to the client has begun. A `100 Continue` is not one.
pub(crate) fn begun(session: &Session) -> bool {
    session.response_written().is_some_and(|header| !header.status.is_informational())
}

/// Begins a response, without a body if `is_end`.
///
/// # Errors
/// The connection's.
pub(crate) async fn write(
    session: &mut Session,
    head: AnswerHead,
    is_end: bool,
) -> pingora::Result<()> {
    let AnswerHead { status, headers } = head;
    let mut parts = http::Response::new(()).into_parts().0;
    parts.status = status;
    match session.as_downstream().as_custom() {
        // Those sessions are the gateway's own, which take them as they are.
        Some(_) => drop(parts.extensions.insert(headers)),
        None => parts.headers = headers.into(),
    }
    session.write_response_header(Box::new(parts.into()), is_end).await
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn answer_headers(fields: &[(&'static str, &str)]) -> AnswerHeaders {
        let mut headers = AnswerHeaders::default();
        for (name, value) in fields {
            let value = HeaderValue::from_str(value).expect("a value");
            headers.append(HeaderName::from_static(name), value);
        }
        headers
    }

    fn written(headers: &AnswerHeaders) -> Vec<(&str, &[u8])> {
        headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
    }

    #[test]
    fn one_takes_the_place_of_all_with_its_name() {
        let mut headers = answer_headers(&[("a", "1"), ("b", "2"), ("a", "3")]);
        let (a, b) = (HeaderName::from_static("a"), HeaderName::from_static("b"));
        assert_eq!(headers.get(&a).map(HeaderValue::as_bytes), Some(&b"1"[..]));
        assert_eq!(headers.get_all(&a).count(), 2);
        headers.insert(a.clone(), HeaderValue::from_static("4"));
        assert_eq!(written(&headers), [("b", &b"2"[..]), ("a", b"4")]);
        assert!(headers.remove(&b) && !headers.remove(&b) && !headers.contains(&b));
        headers.retain(|name, _| *name != a);
        assert_eq!(written(&headers), []);
    }

    #[test]
    fn a_map_has_the_same_headers_and_gives_them_back() {
        let headers =
            answer_headers(&[("set-cookie", "1"), ("content-type", "x"), ("set-cookie", "2")]);
        let map = HeaderMap::from(headers.clone());
        assert_eq!(map.get_all("set-cookie").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(map["content-type"], "x");
        let again = AnswerHeaders::from(map);
        let sorted = |headers: &AnswerHeaders| {
            let mut fields: Vec<_> = written(headers)
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.to_vec()))
                .collect();
            fields.sort();
            fields
        };
        assert_eq!(sorted(&again), sorted(&headers));
    }
}
