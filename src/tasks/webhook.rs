//! Announcing the ends of tasks, as Standard Webhooks 1.0.0 has it: signed, with one id for all
//! tries, until the receiver takes it or says that it is gone.

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
use crate::clock::UnixMs;
use crate::ledger::{AccountId, DeliveryAttempt, Task, Webhook};
use crate::metrics::WebhookOutcome;

/// How long after a try that failed the next one comes (Standard Webhooks 1.0.0, "Retries").
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
/// A receiver that asks for patience gets at most a day of it.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);
/// "Gone": the receiver wants nothing more.
const GONE: u16 = 410;

/// Signs announcements with a secret for each account.
pub(super) struct Signer {
    key: [u8; 32],
}

impl Signer {
    /// With the key in `data_dir`, which is made if it is not there.
    pub(super) fn kept_in(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join("webhook-key");
        if let Ok(text) = fs::read_to_string(&path) {
            let bytes = STANDARD.decode(text.trim()).map_err(io::Error::other)?;
            let key = bytes.try_into().map_err(|_| io::Error::other("webhook-key is no key"))?;
            return Ok(Self { key });
        }
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        crate::ledger::write_private(&path, &STANDARD.encode(key))?;
        Ok(Self { key })
    }

    /// The account's secret, as its receivers are given it.
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

/// What a receiver is told.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(rename = "type")]
    kind: String,
    timestamp: String,
    /// The record that `GET` answers, in its own bytes.
    data: &'a RawValue,
}

/// What a receiver said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Taken,
    Gone,
    /// Nothing good; perhaps when to try again.
    NotTaken(Option<Duration>),
}

impl Tasks {
    /// Announces the end of a task once, and notes what came of it. Whether the receiver answered; `None`
    /// where it was not asked for want of a resource of this machine, which uses up none of its tries.
    pub(super) async fn announce(&self, task: &Task) -> Option<bool> {
        let Webhook::Due { tries, .. } = task.webhook else { return Some(true) };
        let (heard, came_of_it) = self.send(task).await?;
        let answered = came_of_it.is_ok() || matches!(heard, Heard::Gone);
        self.metrics.webhook_tried(match heard {
            Heard::Taken => WebhookOutcome::Taken,
            Heard::Gone => WebhookOutcome::Gone,
            Heard::NotTaken(_) => WebhookOutcome::Failed,
        });
        let next = match heard {
            Heard::Taken => Webhook::Delivered,
            Heard::Gone => Webhook::GivenUp,
            Heard::NotTaken(asked) => match DELAYS.get(tries as usize) {
                None => Webhook::GivenUp,
                Some(delay) => {
                    let delay = delay.mul_f64(0.9 + 0.2 * fastrand::f64());
                    let delay = delay.max(asked.unwrap_or_default().min(RETRY_AFTER_MAX));
                    Webhook::Due { tries: tries + 1, at: UnixMs(UnixMs::now().0 + as_ms(delay)) }
                }
            },
        };
        let id = (task.intent.account, task.id());
        let change = |task: &Task| Task { webhook: next, ..task.clone() };
        match self.ledger.announced(id, DeliveryAttempt::now(came_of_it), change).await {
            Err(error) => log::warn!("the announcement of {} is forgotten: {error}", task.id()),
            Ok(_) => {
                if let Webhook::Due { at, .. } = next {
                    self.agenda.schedule(task, at).await;
                }
            }
        }
        Some(answered)
    }

    /// Sends the announcement once: what the receiver said, and its status or why there is none. `None`
    /// where this machine had no resource left to connect with.
    async fn send(&self, task: &Task) -> Option<(Heard, Result<u16, String>)> {
        let unsendable = || Some((Heard::Gone, Err("it cannot be sent".to_owned())));
        let Some((url, ended)) = task.intent.webhook_url.as_deref().zip(task.ended()) else {
            return unsendable();
        };
        let Ok(data) = RawValue::from_string(self.shown(task).await) else { return unsendable() };
        let told = Told {
            kind: format!("video.task.{}", ended.state),
            timestamp: ended.at.to_rfc3339(),
            data: &data,
        };
        let Ok(body) = serde_json::to_string(&told) else { return unsendable() };
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
                let heard = match answer.status() {
                    200..300 => Heard::Taken,
                    GONE => Heard::Gone,
                    _ => {
                        let asked = answer.headers().get(RETRY_AFTER);
                        let seconds = asked.and_then(|value| value.to_str().ok()?.parse().ok());
                        Heard::NotTaken(seconds.map(Duration::from_secs))
                    }
                };
                Some((heard, Ok(answer.status())))
            }
            Err(error) if error.exhausted().is_some() => None,
            Err(error) => {
                log::info!("the end of {} could not be announced: {error}", task.id());
                Some((Heard::NotTaken(None), Err(error.to_string())))
            }
        }
    }
}
