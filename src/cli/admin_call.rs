//! Calls that commands make to the admin API of a running gateway.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http_body_util::{BodyExt as _, Limited};
use hyper_util::rt::TokioIo;

use super::listen::callable;
use crate::secret::Secret;

/// The longest answer that is read, in bytes: configurations are at most 16 MiB a file, and JSON is
/// hardly longer than YAML.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// An answer: its status, and its body.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

/// `GET`s a path of the admin API at `address`, as it is written in the configuration; all of it may
/// take `time`.
///
/// # Errors
/// When there is no answer. One that refuses is an answer.
pub(super) fn get(
    address: SocketAddr,
    path: &str,
    token: Option<&Secret>,
    time: Duration,
) -> anyhow::Result<Answer> {
    let address = callable(address);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async {
        let call = tokio::time::timeout(time, call(address, path, token)).await;
        call.unwrap_or_else(|_| Err(anyhow!("nothing was heard in {time:?}")))
    });
    answer.with_context(|| format!("no gateway answers at {address}"))
}

async fn call(address: SocketAddr, path: &str, token: Option<&Secret>) -> anyhow::Result<Answer> {
    let stream = tokio::net::TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends when the answer has been read.
    let connection = tokio::spawn(connection);
    let mut request = http::Request::get(path).header(HOST, address.to_string());
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose()));
    }
    let answer = sender.send_request(request.body(String::new())?).await?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    connection.abort();
    let body = body.map_err(|error| anyhow!("the answer broke off: {error}"))?;
    Ok(Answer { status, body: body.to_bytes() })
}
