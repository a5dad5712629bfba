//! The configuration with which tollgate is measured: everything on, the ledger on disk.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::work::Work;

/// What the admin API is asked with.
pub(crate) const ADMIN_TOKEN: &str = "admin-token-of-the-benchmark";
/// The memory that all request bodies may take together, in MiB: four edits of 28 MiB fit, without a
/// copy of any.
pub(crate) const BODY_MEMORY_MIB: u32 = 128;

/// Where the files are.
pub(crate) struct Files {
    pub(crate) routes: PathBuf,
    pub(crate) models: PathBuf,
}

/// Writes both files into `directory`, where the ledger goes too.
pub(crate) fn write(directory: &Path, upstream: SocketAddr) -> anyhow::Result<Files> {
    let files =
        Files { routes: directory.join("routes.yaml"), models: directory.join("models.yaml") };
    std::fs::write(&files.routes, routes(directory, upstream))?;
    std::fs::write(&files.models, models())?;
    Ok(files)
}

fn routes(directory: &Path, upstream: SocketAddr) -> String {
    let data = directory.join("data");
    let mut text = format!(
        "listeners:
  - address: 127.0.0.1:0
    h2c: true
admin:
  address: 127.0.0.1:0
  token: {ADMIN_TOKEN}
store:
  data_dir: {}
limits:
  body_max: 64MiB
  body_memory_max: {BODY_MEMORY_MIB}MiB
upstreams:
",
        data.display()
    );
    for work in Work::ALL {
        let (name, path, protocol) = (work.model(), work.base_path(), work.operation().protocol());
        text += &format!(
            "  {name}:
    protocol: {protocol}
    base_url: \"http://{upstream}{path}\"
    credential: sk-upstream-of-the-benchmark
"
        );
    }
    text
}

fn models() -> String {
    let mut text = "models:\n".to_owned();
    for work in Work::ALL {
        let (name, operation) = (work.model(), work.operation().name());
        text += &format!(
            "  {name}:
    operations: [{operation}]
    targets:
      - {{ upstream: {name} }}
    prices:
      input_per_1m_tokens: 0.15
      cached_input_per_1m_tokens: 0.075
      output_per_1m_tokens: 0.60
    limits:
      context_tokens_max: 8000000
      output_tokens_max: 16384
"
        );
    }
    text
}

/// Makes an account with credit and returns a key of it.
pub(crate) async fn key(admin_url: &str) -> anyhow::Result<String> {
    // The client asks for TLS to be ready, though nothing here uses it.
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::new();
    let post = async |path: String, body: Value| {
        let request = client.post(format!("{admin_url}/admin/v1{path}"));
        let response = request.bearer_auth(ADMIN_TOKEN).json(&body).send().await?;
        anyhow::Ok(response.error_for_status()?.json::<Value>().await?)
    };
    let account = post("/accounts".to_owned(), json!({"name": "bench"})).await?;
    let account = account["id"].as_str().context("no id in an account")?;
    let grant = json!({"amount": "100000.00", "id": "bench"});
    post(format!("/accounts/{account}/grants"), grant).await?;
    let key = post(format!("/accounts/{account}/keys"), json!({"name": "bench"})).await?;
    Ok(key["key"].as_str().context("no key in a key")?.to_owned())
}
