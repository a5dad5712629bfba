//! Ark's callbacks: each new state of a task is posted to a URL from its submit.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use url::{Position, Url};

use crate::tasks::TaskHistory;

/// Largest number of attempts of a callback.
const ATTEMPTS_MAX: u32 = 3;
/// Timeout of an attempt, equal to Ark's.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay after a failed attempt; short to keep tests fast.
const PAUSE: Duration = Duration::from_millis(50);

/// Post each state of a task to `url` until it ends, is cancelled or is evicted. The cancellation itself
/// posts the last one.
pub(super) async fn follow(tasks: Arc<TaskHistory>, id: String, url: String) {
    let Some(course) = tasks.with(&id, |task| task.course()) else { return };
    for (begins, state) in course {
        tokio::time::sleep_until(begins.into()).await;
        let record = tasks.with(&id, |task| match task.cancelled {
            Some(_) => None,
            None => super::record(task, state),
        });
        let Some(record) = record.flatten() else { return };
        deliver(url.clone(), record.to_string()).await;
    }
}

/// Post one record. A failure has no effect on the task.
pub(super) async fn deliver(url: String, record: String) {
    for _ in 0..ATTEMPTS_MAX {
        let attempt = tokio::time::timeout(ATTEMPT_TIMEOUT, post(&url, &record)).await;
        if matches!(attempt, Ok(Some(true))) {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// POST over plain HTTP. Returns true for a success status; `None` without an answer.
async fn post(url: &str, body: &str) -> Option<bool> {
    let url = Url::parse(url).ok().filter(|url| url.scheme() == "http")?;
    let host = url.host_str()?.trim_matches(['[', ']']);
    let mut stream = TcpStream::connect((host, url.port_or_known_default()?)).await.ok()?;
    let authority = &url[Position::BeforeHost..Position::AfterPort];
    let (target, length) = (&url[Position::BeforePath..Position::AfterQuery], body.len());
    let request = format!(
        "POST {target} HTTP/1.1\r\nhost: {authority}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.ok()?;
    Some(status.starts_with(b"HTTP/1.1 2"))
}
