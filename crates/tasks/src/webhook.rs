//! Announcements of tasks' ends by Standard Webhooks 1.0.0: signed, with one id for all tries, until the
//! receiver accepts or answers 410.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::{Tasks, as_ms};
use tollgate_ledger::{AccountId, DeliveryAttempt, Task, Webhook};
use tollgate_telemetry::metrics::WebhookOutcome;
use tollgate_types::clock::UnixMs;

/// Delays between tries (Standard Webhooks 1.0.0, "Retries").
const DELAYS: [Duration; 9] = [
    Duration::from_secs(5),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 3600),
    Duration::from_secs(5 * 3600),
    Duration::from_secs(10 * 3600),
    Duration::from_secs(14 * 3600),
    Duration::from_secs(20 * 3600),
    Duration::from_secs(24 * 3600),
];
/// Longest `Retry-After` that is honoured.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);
/// Status with which a receiver unsubscribes.
const GONE: u16 = 410;

/// Signs announcements with a secret for each account.
pub(super) struct WebhookSigner {
    key: [u8; 32],
}

impl WebhookSigner {
    /// Load the key from `data_dir`, creating it if missing.
    pub(super) fn load_or_create(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join("webhook-key");
        if let Ok(text) = fs::read_to_string(&path) {
            let bytes = STANDARD.decode(text.trim()).map_err(io::Error::other)?;
            let key = bytes.try_into().map_err(|_| io::Error::other("webhook-key is no key"))?;
            return Ok(Self { key });
        }
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        tollgate_ledger::write_private(&path, &STANDARD.encode(key))?;
        Ok(Self { key })
    }

    /// Signing secret of an account, in the form that its receivers configure.
    pub(super) fn secret(&self, account: AccountId) -> String {
        // Both parts have a fixed length, so no two accounts share a text.
        let digest = Sha256::new()
            .chain_update(self.key)
            .chain_update(account.number().to_be_bytes())
            .finalize();
        format!("whsec_{}", STANDARD.encode(digest))
    }

    fn headers(&self, task: &Task, at_s: i64, body: &[u8]) -> Option<HeaderMap> {
        let id = format!("msg_{}", task.id());
        let signer = standardwebhooks::Webhook::new(&self.secret(task.intent.account)).ok()?;
        let signature = signer.sign(&id, at_s, body).ok()?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in [
            ("webhook-id", id),
            ("webhook-timestamp", at_s.to_string()),
            ("webhook-signature", signature),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_str(&value).ok()?);
        }
        Some(headers)
    }
}

/// Body of a webhook request.
#[derive(Serialize)]
struct WebhookBody<'a> {
    #[serde(rename = "type")]
    kind: String,
    timestamp: String,
    /// The record as `GET` returns it, byte for byte.
    data: &'a RawValue,
}

/// Receiver's response to a webhook request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WebhookResponse {
    Accepted,
    Unsubscribed,
    /// Any other response or none, with its `Retry-After`.
    Rejected(Option<Duration>),
}

impl Tasks {
    /// Announce the end of a task once, and record the result. Returns whether the receiver answered;
    /// `None` if this machine lacked a resource to connect, which uses up no try.
    pub(super) async fn announce(&self, task: &Task) -> Option<bool> {
        let Webhook::Due { tries, .. } = task.webhook else { return Some(true) };
        let (response, outcome) = self.send(task).await?;
        let answered = outcome.is_ok() || matches!(response, WebhookResponse::Unsubscribed);
        self.metrics.webhook_tried(match response {
            WebhookResponse::Accepted => WebhookOutcome::Taken,
            WebhookResponse::Unsubscribed => WebhookOutcome::Gone,
            WebhookResponse::Rejected(_) => WebhookOutcome::Failed,
        });
        let next = match response {
            WebhookResponse::Accepted => Webhook::Delivered,
            WebhookResponse::Unsubscribed => Webhook::GivenUp,
            WebhookResponse::Rejected(retry_after) => match DELAYS.get(tries as usize) {
                None => Webhook::GivenUp,
                Some(delay) => {
                    // Spread, or a receiver that comes back would meet all that waits for it at once.
                    let delay = delay.mul_f64(0.9 + 0.2 * fastrand::f64());
                    let delay = delay.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX));
                    Webhook::Due { tries: tries + 1, at: UnixMs(UnixMs::now().0 + as_ms(delay)) }
                }
            },
        };
        let id = (task.intent.account, task.id());
        let change = |task: &Task| Task { webhook: next, ..task.clone() };
        match self.ledger.announced(id, DeliveryAttempt::now(outcome), change).await {
            Err(error) => log::warn!("the announcement of {} is forgotten: {error}", task.id()),
            Ok(_) => {
                if let Webhook::Due { at, .. } = next {
                    self.agenda.schedule(task, at).await;
                }
            }
        }
        Some(answered)
    }

    /// Send the announcement once. Returns the response, and the status or the error; `None` if this
    /// machine lacked a resource to connect.
    async fn send(&self, task: &Task) -> Option<(WebhookResponse, Result<u16, String>)> {
        let unsendable =
            || Some((WebhookResponse::Unsubscribed, Err("it cannot be sent".to_owned())));
        let Some((url, ended)) = task.intent.webhook_url.as_deref().zip(task.ended()) else {
            return unsendable();
        };
        let Ok(data) = RawValue::from_string(self.shown(task).await) else { return unsendable() };
        let body = WebhookBody {
            kind: format!("video.task.{}", ended.state),
            timestamp: ended.at.to_rfc3339(),
            data: &data,
        };
        let Ok(body) = serde_json::to_string(&body) else { return unsendable() };
        // Of this try: receivers refuse what was signed minutes ago.
        let at_s = i64::try_from(UnixMs::now().0 / 1000).unwrap_or(i64::MAX);
        let Some(headers) = self.signer.headers(task, at_s, body.as_bytes()) else {
            return unsendable();
        };
        let config = self.config.load();
        let (hosts, timeout) = (&*config.tasks.webhook_hosts, config.tasks.webhook_timeout);
        let proxies = &config.proxies;
        let sent = self.outbound.announce(url, hosts, proxies, timeout, headers, body.into());
        match sent.await {
            Ok(answer) => {
                let response = match answer.status() {
                    200..300 => WebhookResponse::Accepted,
                    GONE => WebhookResponse::Unsubscribed,
                    _ => {
                        let retry_after = answer.headers().get(RETRY_AFTER);
                        let seconds =
                            retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
                        WebhookResponse::Rejected(seconds.map(Duration::from_secs))
                    }
                };
                Some((response, Ok(answer.status())))
            }
            Err(error) if error.exhausted().is_some() => None,
            Err(error) => {
                log::info!("the end of {} could not be announced: {error}", task.id());
                Some((WebhookResponse::Rejected(None), Err(error.to_string())))
            }
        }
    }
}
