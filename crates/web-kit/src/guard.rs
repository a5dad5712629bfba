//! Checks of every request of a console: its session, the proof that a page of this console sent the form,
//! and the headers that keep a browser from doing anything else with a page.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::session::{Session, SessionChange, Sessions};
use tollgate_types::clock::UnixMs;

/// The largest form, in bytes: the longest field is a list of models.
const FORM_BYTES_MAX: usize = 64 << 10;
/// The time within which a whole form must arrive.
const FORM_TIMEOUT: Duration = Duration::from_secs(10);
/// The field of a form, and the header of a script's call, that prove where it comes from.
const FORM_FIELD: &str = "csrf";
const FORM_HEADER: HeaderName = HeaderName::from_static("x-csrf-token");

/// Origin of a request, added by the accepting listener.
#[derive(Clone, Copy, Debug, Default)]
pub struct Client {
    /// The address that the browser calls from; `None` where it is not known.
    pub address: Option<IpAddr>,
    /// True if the browser speaks TLS.
    pub tls: bool,
}

/// In the extensions of an answer: the page shows pictures and films of the providers'.
#[derive(Clone, Copy, Debug)]
pub struct ShowsMedia;

/// Configuration of one console's checks.
#[derive(Clone)]
pub struct ConsoleGuard {
    /// Reads and writes its cookie.
    pub sessions: Arc<Sessions>,
}

/// Around every handler of a console. Puts the [`Session`] into the request.
pub async fn guard(State(guarded): State<ConsoleGuard>, request: Request, next: Next) -> Response {
    let client = request.extensions().get::<Client>().copied().unwrap_or_default();
    let valid = guarded.sessions.read(request.headers(), UnixMs::now());
    // Guests have a session too: the token of the log-in form is bound to it, against log-ins by other sites.
    let session = valid.clone().unwrap_or_else(Session::guest);
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let checked = if is_read { Ok(request) } else { check_form(&guarded, &session, request).await };
    let mut response = match checked {
        Ok(mut request) => {
            request.extensions_mut().insert(session.clone());
            next.run(request).await
        }
        Err(refused) => refused,
    };
    let cookie = match response.extensions_mut().remove::<SessionChange>() {
        Some(SessionChange::Begin(begun)) => Some(guarded.sessions.write(Some(&begun), client.tls)),
        Some(SessionChange::End) => Some(guarded.sessions.write(None, client.tls)),
        // A guest who got a page may send its form.
        None if valid.is_none() && is_read && is_page(&response) => {
            Some(guarded.sessions.write(Some(&session), client.tls))
        }
        None => None,
    };
    protect(&mut response, client);
    match cookie {
        Some(cookie) => (cookie, response).into_response(),
        None => response,
    }
}

fn is_page(response: &Response) -> bool {
    let media_type = response.headers().get(header::CONTENT_TYPE);
    media_type.is_some_and(|value| value.as_bytes().starts_with(b"text/html"))
}

/// The request with its body read, if a page of this session has sent it.
async fn check_form(
    guarded: &ConsoleGuard,
    session: &Session,
    request: Request,
) -> Result<Request, Response> {
    let refused = |status, text: &'static str| (status, text).into_response();
    let (parts, body) = request.into_parts();
    // Before the body is read: a form of another site costs no memory.
    if !is_same_origin(&parts.headers) {
        return Err(refused(StatusCode::FORBIDDEN, "This form was sent by another site."));
    }
    let body = axum::body::to_bytes(body, FORM_BYTES_MAX);
    let body = match tokio::time::timeout(FORM_TIMEOUT, body).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            return Err(refused(StatusCode::PAYLOAD_TOO_LARGE, "This form is too large."));
        }
        Err(_) => {
            return Err(refused(StatusCode::REQUEST_TIMEOUT, "The form did not arrive in time."));
        }
    };
    // A header for scripts, whose bodies are no forms. Pages of other sites cannot set it.
    let token = token(&parts.headers, &body);
    if !token.is_some_and(|token| guarded.sessions.is_form_token(session, &token)) {
        let text = "This page is too old, or its cookie was not kept. Go back, reload it and try \
                    again.";
        return Err(refused(StatusCode::FORBIDDEN, text));
    }
    Ok(Request::from_parts(parts, Body::from(body)))
}

/// True unless the browser says that another site sends the request. Old browsers say nothing; the form's
/// token is required either way.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if text("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
        return false;
    }
    match (text("origin"), text("host")) {
        (Some(origin), Some(host)) => {
            // Without the scheme: a proxy that ends TLS hides it from the gateway. `null` has no authority
            // and is refused.
            origin.split_once("://").is_some_and(|(_, authority)| authority == host)
        }
        _ => true,
    }
}

fn token(headers: &HeaderMap, body: &Bytes) -> Option<String> {
    if let Some(token) = headers.get(FORM_HEADER) {
        return token.to_str().ok().map(str::to_owned);
    }
    let mut fields = url::form_urlencoded::parse(body);
    fields.find(|(name, _)| name == FORM_FIELD).map(|(_, value)| value.into_owned())
}

/// The headers of every answer.
fn protect(response: &mut Response, client: Client) {
    let shows_media = response.extensions().get::<ShowsMedia>().is_some();
    let media = match (shows_media, client.tls) {
        (false, _) => "",
        (true, true) => " blob: https:",
        // Over plain HTTP everything can be read anyway: a simulated provider is on this machine.
        (true, false) => " blob: https: http:",
    };
    let policy = format!(
        // No inline scripts or styles: text that slips through the escaping still cannot run.
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:{media}; \
         media-src 'self' data:{media}; connect-src 'self'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'"
    );
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (
            HeaderName::from_static("permissions-policy"),
            "camera=(), geolocation=(), microphone=(), payment=()",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if client.tls {
        // Without `includeSubDomains`: the gateway does not know what else the operator's domain serves.
        let for_a_year = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, for_a_year);
    }
    // Pages show money and keys; only the embedded files may be kept.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_other_sites_are_told_apart() {
        for (headers, expected) in [
            (vec![], true),
            (vec![("origin", "http://here:8080"), ("host", "here:8080")], true),
            (vec![("origin", "http://here:9090"), ("host", "here:8080")], false),
            (vec![("origin", "null"), ("host", "here:8080")], false),
            (vec![("sec-fetch-site", "same-origin")], true),
            (vec![("sec-fetch-site", "same-site")], false),
            (vec![("sec-fetch-site", "cross-site")], false),
        ] {
            let map = headers.iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            assert_eq!(is_same_origin(&HeaderMap::from_iter(map)), expected, "{headers:?}");
        }
    }
}
