//! The configuration with which tollgate is measured: everything on, the ledger on disk.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::rig::account::ADMIN_TOKEN;
use crate::work::{self, Operation};

/// The memory that all request bodies may take together, in MiB: four edits of 28 MiB fit, without a
/// copy of any.
pub(crate) const BODY_MEMORY_MIB: u32 = 128;

/// Prices of models that generate.
const GENERATION_PRICES: &str =
    "input_per_1m_tokens: 0.15, cached_input_per_1m_tokens: 0.075, output_per_1m_tokens: 0.60";

/// Paths of the files.
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
  per_account: {{ requests_in_flight_percent: 100, body_memory_percent: 100 }}
upstreams:
",
        data.display()
    );
    for work in work::ALL {
        let (name, path, protocol) = (work.model, work.base_path(), work.upstreams.protocol());
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
    for work in work::ALL {
        let (name, operation) = (work.model, work.upstreams.name());
        let (prices, limits) = match work.upstreams {
            Operation::Embeddings => ("input_per_1m_tokens: 0.15", ""),
            _ => (GENERATION_PRICES, ", output_tokens_max: 16384"),
        };
        text += &format!(
            "  {name}:
    operations: [{operation}]
    targets:
      - {{ upstream: {name} }}
    prices: {{ {prices} }}
    limits: {{ context_tokens_max: 8000000{limits} }}
"
        );
    }
    text
}
