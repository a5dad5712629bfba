//! One request to a token endpoint, within a time and a size.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};
use tollgate_options::auth::{Auth, AuthKind};
use tollgate_outbound::{FormAnswer, FormClient, FormLimits, OutboundError};
use tollgate_types::clock::{UnixMs, uptime};

use crate::issued::{IssuedCredential, Proof};
use crate::question::{TokenGrant, TokenRequest, ahead_ms, is_sendable};
use crate::source::{FetchFailure, RefreshOutcome, TokenSource};
use crate::{entra, google, sts};

/// The longest that a call may take, with the wait for other calls to end.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The longest time that a token is cached, whatever lifetime the endpoint states.
const LIFE_MAX: Duration = Duration::from_secs(24 * 3600);
/// A token is not used in the last part of its life: a request takes a while to be looked at.
const MARGIN_MAX: Duration = Duration::from_secs(30);
/// The offset between two clocks, in milliseconds, below which they count as equal: token endpoints tolerate
/// some minutes.
const CLOCKS_DIFFER_MS_MIN: i64 = 30_000;
/// The longest error description in a message to the operator, in letters.
const DESCRIPTION_LETTERS_MAX: usize = 300;
/// A longer word of an error may be what was sent.
const DESCRIPTION_WORD_LETTERS_MAX: usize = 80;

/// Fetches a token for an account, given by its name in session tags. If the endpoint refuses and its clock
/// differs from ours, the request is repeated by its clock.
pub(crate) async fn fetch(
    client: &FormClient,
    source: &TokenSource,
    account: &str,
) -> Result<IssuedCredential, FetchFailure> {
    // Before the call: a token's life counts from when it was made, which lies somewhere within it.
    let began = uptime();
    let grant = async {
        // It is never closed.
        let _call = source.calls.acquire().await;
        match ask(client, source, account).await {
            // Once: with the right time it is refused for another reason.
            Err(error_response) if error_response.1 => ask(client, source, account).await,
            grant => grant,
        }
    };
    let timed_out = || FetchFailure {
        outcome: RefreshOutcome::TimedOut,
        cause: "it did not answer in time".to_owned(),
        pause: None,
    };
    let grant = tokio::time::timeout(CALL_TIMEOUT, grant).await;
    let TokenGrant { proof, life } =
        grant.map_err(|_| timed_out())?.map_err(|(failure, _)| failure)?;
    let life = life.min(LIFE_MAX);
    let ends_at = began.saturating_add(life.saturating_sub(MARGIN_MAX.min(life / 10)));
    let renew_at = began.saturating_add(life / 4 * 3).min(ends_at);
    Ok(IssuedCredential { proof, renew_at, ends_at })
}

/// Sends one token request. The flag beside a failure is true if a clock offset was found.
async fn ask(
    client: &FormClient,
    source: &TokenSource,
    account: &str,
) -> Result<TokenGrant, (FetchFailure, bool)> {
    let (auth, ahead_ms) = (&*source.auth, source.ahead_ms());
    let now = UnixMs(UnixMs::now().0.saturating_add_signed(ahead_ms));
    let tag = source.account_tag().map(|key| (key, account));
    let request = match &auth.kind {
        AuthKind::Entra(entra) => Ok(entra::request(entra)),
        AuthKind::Google(google) => google::request(google, now),
        AuthKind::Aws(aws) => sts::request(aws, tag, now),
    };
    let mut request = request.map_err(|cause| (unreadable(cause), false))?;
    let json = HeaderValue::from_static("application/json");
    request.headers.insert(ACCEPT, json);
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    request.headers.insert(CONTENT_TYPE, form);
    let TokenRequest { url, form, headers } = request;
    let limits = FormLimits { time: CALL_TIMEOUT, bytes_max: ANSWER_BYTES_MAX };
    let sent = client.post(url, auth.proxy.as_ref(), headers, form, limits).await;
    let answer = sent.map_err(|error| (unanswered(&error), false))?;
    if !(200..300).contains(&answer.status) {
        let differs = learn_clock(source, &answer.headers, ahead_ms);
        return Err((error_response(auth, &answer), differs));
    }
    let read = match &auth.kind {
        AuthKind::Entra(_) | AuthKind::Google(_) => read_token(&answer.body),
        AuthKind::Aws(aws) => sts::read(aws, &answer, ahead_ms),
    };
    read.map_err(|cause| (unreadable(cause), false))
}

/// A token response of OAuth 2.0 (RFC 6749, section 5.1).
#[derive(serde::Deserialize)]
struct TokenAnswer {
    access_token: String,
    /// Lifetime in seconds; some endpoints send a string.
    expires_in: serde_json::Value,
}

fn read_token(body: &[u8]) -> Result<TokenGrant, &'static str> {
    let answer: TokenAnswer =
        serde_json::from_slice(body).map_err(|_| "its answer has no token in it")?;
    // Some endpoints write the number as a text.
    let seconds = match &answer.expires_in {
        serde_json::Value::String(text) => text.parse().ok(),
        number => number.as_u64(),
    };
    let seconds = seconds.filter(|seconds| *seconds > 0);
    let life = Duration::from_secs(seconds.ok_or("its token ends when it begins")?);
    if !is_sendable(&answer.access_token) {
        return Err("its token cannot stand in a header");
    }
    let value = ["Bearer ", &answer.access_token].concat();
    Ok(TokenGrant { proof: Proof::Bearer(tollgate_types::secret::Secret::new(value)), life })
}

/// Stores the offset of the endpoint's clock; returns true if it has changed.
fn learn_clock(source: &TokenSource, headers: &HeaderMap, previous_ms: i64) -> bool {
    let Some(ahead_ms) = ahead_ms(headers) else { return false };
    let is_news = ahead_ms.saturating_sub(previous_ms).abs() >= CLOCKS_DIFFER_MS_MIN;
    if is_news {
        source.set_ahead_ms(ahead_ms);
        let seconds = ahead_ms / 1000;
        log::warn!("whoever issues tokens for {source} has a clock that differs by {seconds} s");
    }
    is_news
}

fn unreadable(cause: &str) -> FetchFailure {
    FetchFailure { outcome: RefreshOutcome::Unreadable, cause: cause.to_owned(), pause: None }
}

fn unanswered(error: &OutboundError) -> FetchFailure {
    let outcome = match (error.exhausted(), error) {
        (Some(resource), _) => RefreshOutcome::Exhausted(resource),
        (None, OutboundError::TimedOut) => RefreshOutcome::TimedOut,
        (None, OutboundError::TooLarge) => RefreshOutcome::Unreadable,
        (None, _) => RefreshOutcome::Unreachable,
    };
    FetchFailure { outcome, cause: error.to_string(), pause: None }
}

/// Describes an error response of a token endpoint.
fn error_response(auth: &Auth, answer: &FormAnswer) -> FetchFailure {
    let outcome = match answer.status {
        429 | 500.. => RefreshOutcome::Failed,
        _ => RefreshOutcome::Refused,
    };
    let description = match &auth.kind {
        AuthKind::Aws(_) => sts::error_text(&answer.body),
        AuthKind::Entra(_) | AuthKind::Google(_) => error_text(&answer.body),
    };
    let mut cause = format!("it answered {}", answer.status);
    if let Some(description) = description.and_then(|description| sanitise(&description, auth)) {
        cause = format!("{cause}: {description}");
    }
    let seconds =
        answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    FetchFailure { outcome, cause, pause: seconds.map(Duration::from_secs) }
}

/// The error of an endpoint of OAuth 2.0 (RFC 6749 section 5.2).
fn error_text(body: &[u8]) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    let text = |name: &str| answer[name].as_str().unwrap_or_default();
    let description = [text("error"), text("error_description")].join(" ");
    Some(description.trim().to_owned()).filter(|description| !description.is_empty())
}

/// Sanitises an error text for the log: no secret, no long word, no line break; `None` for a text with a
/// secret.
fn sanitise(description: &str, auth: &Auth) -> Option<String> {
    // An endpoint may quote what it was sent.
    if auth.secrets().any(|secret| !secret.is_empty() && description.contains(secret)) {
        return None;
    }
    let words = description.split(|letter: char| letter.is_whitespace() || letter.is_control());
    let words = words.filter(|word| !word.is_empty());
    let short = |word: &str| {
        if word.chars().count() > DESCRIPTION_WORD_LETTERS_MAX { "…" } else { word }.to_owned()
    };
    let sanitised = words.map(short).collect::<Vec<String>>().join(" ");
    Some(sanitised.chars().take(DESCRIPTION_LETTERS_MAX).collect())
}
