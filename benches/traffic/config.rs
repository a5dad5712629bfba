//! The configurations: the first, and those that differ from it in one thing.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;

use crate::rig::account::ADMIN_TOKEN;

/// Requests and tokens a minute that no load reaches: the limits are counted and never in the way.
const PER_MINUTE: u32 = 1_000_000_000;
/// The same for requests at one time.
const CONCURRENT: u32 = 1_000_000;

/// Settings of a gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) models: usize,
    /// Each has [`KEYS_PER_ACCOUNT`] keys.
    pub(crate) accounts: usize,
    /// True if keys, accounts and models have limits of requests, tokens and concurrency.
    pub(crate) limited: bool,
    /// Settings of the simulated upstream, as the start of its paths. Without any it answers blindly.
    pub(crate) upstream: &'static str,
}

/// The keys of each account.
pub(crate) const KEYS_PER_ACCOUNT: usize = 10;

impl Setup {
    /// The reference of the others: 10 models, 10 keys, no limits, an instant upstream.
    pub(crate) const PLAIN: Self = Self { models: 10, accounts: 1, limited: false, upstream: "" };
}

/// A model's name, which its upstream uses too, so that no byte of a body has to change.
pub(crate) fn model(number: usize) -> String {
    format!("chat-{number:04}")
}

/// Paths of the files.
pub(crate) struct Files {
    pub(crate) routes: PathBuf,
    pub(crate) models: PathBuf,
    /// The same models with another price: what a reload finds.
    pub(crate) models_next: PathBuf,
    /// Of the listener with TLS.
    pub(crate) certificate: CertificateDer<'static>,
}

/// Writes the files into `directory`, where the ledger goes too.
pub(crate) fn write(directory: &Path, setup: Setup, upstream: SocketAddr) -> anyhow::Result<Files> {
    let pair = rcgen::KeyPair::generate()?;
    let names = ["localhost".to_owned()];
    let certificate = rcgen::CertificateParams::new(names)?.self_signed(&pair)?;
    std::fs::write(directory.join("cert.pem"), certificate.pem())?;
    std::fs::write(directory.join("key.pem"), pair.serialize_pem())?;
    let files = Files {
        routes: directory.join("routes.yaml"),
        models: directory.join("models.yaml"),
        models_next: directory.join("models-next.yaml"),
        certificate: certificate.der().clone(),
    };
    std::fs::write(&files.routes, routes(directory, setup, upstream))?;
    std::fs::write(&files.models, models(setup, "0.60"))?;
    std::fs::write(&files.models_next, models(setup, "0.61"))?;
    Ok(files)
}

fn limits() -> String {
    format!(
        "{{ requests_per_minute: {PER_MINUTE}, tokens_per_minute: {PER_MINUTE}, \
         concurrent_requests: {CONCURRENT} }}"
    )
}

fn routes(directory: &Path, setup: Setup, upstream: SocketAddr) -> String {
    let mut text = format!(
        "listeners:
  - address: 127.0.0.1:0
  - address: 127.0.0.1:0
    tls: {{ certificate: cert.pem, key: key.pem }}
admin:
  address: 127.0.0.1:0
  token: {ADMIN_TOKEN}
store:
  data_dir: {}
limits:
  per_account: {{ requests_in_flight_percent: 100, body_memory_percent: 100 }}
upstreams:
  sim:
    protocol: openai
    base_url: \"http://{upstream}{}/v1\"
    credential: sk-upstream-of-the-benchmark
",
        directory.join("data").display(),
        setup.upstream
    );
    if setup.limited {
        text += &format!("rate_limits:\n  key: {}\n  account: {}\n", limits(), limits());
    }
    text
}

fn models(setup: Setup, output_price: &str) -> String {
    let mut text = "models:\n".to_owned();
    for number in 0..setup.models {
        text += &format!(
            "  {}:
    operations: [chat]
    targets:
      - {{ upstream: sim }}
    prices:
      input_per_1m_tokens: 0.15
      cached_input_per_1m_tokens: 0.075
      output_per_1m_tokens: {output_price}
    limits:
      context_tokens_max: 128000
      output_tokens_max: 16384
",
            model(number)
        );
        if setup.limited {
            text += &format!("    rate_limits: {}\n", limits());
        }
    }
    text
}
