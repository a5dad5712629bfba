//! Calls to the admin API of a running gateway.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use http::header::{AUTHORIZATION, HOST};
use http_body_util::{BodyExt as _, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;

use super::listen::callable;
use super::serve::load;
use crate::config::{Overrides, Sources};
use crate::secret::Secret;

/// How long a call may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer: a list of a page.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Which gateway, and as whom.
#[derive(Debug, Args)]
pub(super) struct Operator {
    /// Address of the admin API. Default: that of `routes.yaml`.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// A file with the admin token. Default: the token of `routes.yaml`, or the one that the gateway
    /// has made in its data directory.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Listeners, upstreams, routes, limits and the store.
    #[arg(long, default_value = "routes.yaml", value_name = "FILE")]
    routes: PathBuf,
    /// Models, their targets and prices.
    #[arg(long, default_value = "models.yaml", value_name = "FILE")]
    models: PathBuf,
}

impl Operator {
    /// `GET`s a path of the admin API.
    pub(super) fn get(&self, path: &str) -> anyhow::Result<Value> {
        let (address, token) = self.place()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let call = tokio::time::timeout(TIMEOUT, get(address, &token, path)).await;
            call.context("no answer in time")?
        })
    }

    fn place(&self) -> anyhow::Result<(SocketAddr, Secret)> {
        if let (Some(admin), Some(file)) = (self.admin, &self.token_file) {
            return Ok((admin, read_token(file)?));
        }
        let (routes, models) = (self.routes.clone(), self.models.clone());
        let Some(config) = load(&Sources::Files { routes, models }, &Overrides::default()) else {
            bail!("name the gateway by --admin and --token-file, or mend the files");
        };
        let token = match (&self.token_file, config.admin.token) {
            (Some(file), _) => read_token(file)?,
            (None, Some(token)) => token,
            (None, None) => read_token(&config.store.data_dir.join("admin-token"))?,
        };
        Ok((self.admin.unwrap_or(config.admin.address), token))
    }
}

fn read_token(file: &std::path::Path) -> anyhow::Result<Secret> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the admin token in {}", file.display()))?;
    Ok(Secret::new(text.trim().to_owned()))
}

async fn get(address: SocketAddr, token: &Secret, path: &str) -> anyhow::Result<Value> {
    let address = callable(address);
    let unreachable = || format!("no gateway answers at {address}");
    let stream = tokio::net::TcpStream::connect(address).await.with_context(unreachable)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends when the answer has been read.
    let connection = tokio::spawn(connection);
    let request = http::Request::get(path)
        .header(HOST, address.to_string())
        .header(AUTHORIZATION, format!("Bearer {}", token.expose()))
        .body(String::new())?;
    let answer = sender.send_request(request).await.with_context(unreachable)?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    connection.abort();
    let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?;
    let document: Value = serde_json::from_slice(&body.to_bytes())?;
    if !status.is_success() {
        let message = document["error"]["message"].as_str().unwrap_or("no reason was given");
        bail!("the gateway answered {}: {message}", status.as_u16());
    }
    Ok(document)
}
