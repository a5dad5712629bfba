//! One call to whoever issues tokens, within a time and a size.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};
use tollgate_options::auth::{Auth, AuthKind};
use tollgate_outbound::{FormAnswer, FormClient, FormLimits, OutboundError};
use tollgate_types::clock::{UnixMs, uptime};

use crate::issued::{Issued, Proof};
use crate::question::{Grant, TokenRequest, ahead_ms, is_sendable};
use crate::source::{FetchFailure, RefreshOutcome, TokenSource};
use crate::{entra, google, sts};

/// The longest that a call may take, with the wait for other calls to end.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Whatever is said, a token is not kept for longer.
const LIFE_MAX: Duration = Duration::from_secs(24 * 3600);
/// A token is not used in the last part of its life: a request takes a while to be looked at.
const MARGIN_MAX: Duration = Duration::from_secs(30);
/// Clocks that differ by less, in milliseconds, are taken to be equal: whoever issues tokens allows for
/// some minutes.
const CLOCKS_DIFFER_MS_MIN: i64 = 30_000;
/// The longest text of an error that is told to the operator, in letters.
const TOLD_LETTERS_MAX: usize = 300;
/// A longer word of an error may be what was sent.
const TOLD_WORD_LETTERS_MAX: usize = 80;

/// Gets a token for an account, by its name in tags. Where the other side refuses it and its clock
/// differs from ours, it is asked once more by its clock.
pub(crate) async fn fetch(
    client: &FormClient,
    source: &TokenSource,
    account: &str,
) -> Result<Issued, FetchFailure> {
    let began = uptime();
    let asked = async {
        // It is never closed.
        let _call = source.calls.acquire().await;
        match ask(client, source, account).await {
            Err(refused) if refused.1 => ask(client, source, account).await,
            asked => asked,
        }
    };
    let timed_out = || FetchFailure {
        outcome: RefreshOutcome::TimedOut,
        cause: "it did not answer in time".to_owned(),
        pause: None,
    };
    let asked = tokio::time::timeout(CALL_TIMEOUT, asked).await;
    let Grant { proof, life } = asked.map_err(|_| timed_out())?.map_err(|(failure, _)| failure)?;
    let life = life.min(LIFE_MAX);
    let ends_at = began.saturating_add(life.saturating_sub(MARGIN_MAX.min(life / 10)));
    let renew_at = began.saturating_add(life / 4 * 3).min(ends_at);
    Ok(Issued { proof, renew_at, ends_at })
}

/// Asks once. The failure says whether the clocks were found to differ.
async fn ask(
    client: &FormClient,
    source: &TokenSource,
    account: &str,
) -> Result<Grant, (FetchFailure, bool)> {
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
        return Err((refused(auth, &answer), differs));
    }
    let read = match &auth.kind {
        AuthKind::Entra(_) | AuthKind::Google(_) => read_token(&answer.body),
        AuthKind::Aws(aws) => sts::read(aws, &answer, ahead_ms),
    };
    read.map_err(|cause| (unreadable(cause), false))
}

/// What an endpoint of OAuth 2.0 issues (RFC 6749 section 5.1).
#[derive(serde::Deserialize)]
struct TokenAnswer {
    access_token: String,
    /// In seconds; some write it as a text.
    expires_in: serde_json::Value,
}

fn read_token(body: &[u8]) -> Result<Grant, &'static str> {
    let answer: TokenAnswer =
        serde_json::from_slice(body).map_err(|_| "its answer has no token in it")?;
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
    Ok(Grant { proof: Proof::Bearer(tollgate_types::secret::Secret::new(value)), life })
}

/// Notes how far the other side's clock is ahead; says whether that is news.
fn learn_clock(source: &TokenSource, headers: &HeaderMap, known_ms: i64) -> bool {
    let Some(ahead_ms) = ahead_ms(headers) else { return false };
    let is_news = ahead_ms.saturating_sub(known_ms).abs() >= CLOCKS_DIFFER_MS_MIN;
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

/// What an answer without success says.
fn refused(auth: &Auth, answer: &FormAnswer) -> FetchFailure {
    let outcome = match answer.status {
        429 | 500.. => RefreshOutcome::Failed,
        _ => RefreshOutcome::Refused,
    };
    let said = match &auth.kind {
        AuthKind::Aws(_) => sts::error_text(&answer.body),
        AuthKind::Entra(_) | AuthKind::Google(_) => error_text(&answer.body),
    };
    let mut cause = format!("it answered {}", answer.status);
    if let Some(said) = said.and_then(|said| shown(&said, auth)) {
        cause = format!("{cause}: {said}");
    }
    let seconds =
        answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    FetchFailure { outcome, cause, pause: seconds.map(Duration::from_secs) }
}

/// The error of an endpoint of OAuth 2.0 (RFC 6749 section 5.2).
fn error_text(body: &[u8]) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    let text = |name: &str| answer[name].as_str().unwrap_or_default();
    let said = [text("error"), text("error_description")].join(" ");
    Some(said.trim().to_owned()).filter(|said| !said.is_empty())
}

/// What of an error's text is told: nothing with a secret in it, no long words, no line breaks.
fn shown(said: &str, auth: &Auth) -> Option<String> {
    if auth.secrets().any(|secret| !secret.is_empty() && said.contains(secret)) {
        return None;
    }
    let words = said.split(|letter: char| letter.is_whitespace() || letter.is_control());
    let words = words.filter(|word| !word.is_empty());
    let short = |word: &str| {
        if word.chars().count() > TOLD_WORD_LETTERS_MAX { "…" } else { word }.to_owned()
    };
    let told = words.map(short).collect::<Vec<String>>().join(" ");
    Some(told.chars().take(TOLD_LETTERS_MAX).collect())
}
