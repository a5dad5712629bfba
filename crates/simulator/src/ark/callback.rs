//! Ark tells whoever asked for it of each state that a task comes into.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use url::{Position, Url};

use crate::tasks::TaskStore;

/// How often a callback is tried.
const ATTEMPTS_MAX: u32 = 3;
/// How long an attempt may take: as long as Ark waits.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait after an attempt that failed: short, so that tests are.
const PAUSE: Duration = Duration::from_millis(50);

/// Tells `url` of each state of a task until it is over, cancelled or no longer known. Who cancels it
/// tells of that.
pub(super) async fn follow(tasks: Arc<TaskStore>, id: String, url: String) {
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

/// Sends one record. Whether anybody takes it does not matter to the task.
pub(super) async fn deliver(url: String, record: String) {
    for _ in 0..ATTEMPTS_MAX {
        let attempt = tokio::time::timeout(ATTEMPT_TIMEOUT, post(&url, &record)).await;
        if matches!(attempt, Ok(Some(true))) {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether the answer has a status of success; `None` without an answer. Without TLS, as all here.
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
