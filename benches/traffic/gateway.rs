//! The processes that are measured, and the upstream behind them.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::config::{self, Files, Setup};
use crate::rig::load::{self, Aim};
use crate::rig::process::Process;
use crate::rig::{account, body, http};

/// Path of the requests.
pub(crate) const PATH: &str = "/v1/chat/completions";

/// The simulated upstream.
pub(crate) struct Upstream {
    _process: Process,
    address: SocketAddr,
}

impl Upstream {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let process = Process::start(command.args(["sim", "--listen", "127.0.0.1:0", "blind=on"]))?;
        let address = process.ready_field("address")?.parse()?;
        Ok(Self { _process: process, address })
    }
}

/// Starts the smallest possible Pingora proxy. The path of its stream begins with `settings` for the
/// simulated upstream.
pub(crate) async fn floor(upstream: &Upstream, settings: &str) -> anyhow::Result<(Process, Aim)> {
    let mut command = Command::new(std::env::current_exe()?);
    let process = Process::start(command.args(["floor", &upstream.address.to_string()]))?;
    let address = process.ready_field("address")?.parse()?;
    // As many bytes as the gateway gets.
    let key = "sk-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH";
    let body = body::chat(&config::model(0), true, 0);
    let request = |settings: &str| {
        let request = http::post(&format!("{settings}{PATH}"), key, "application/json", &body);
        Aim { address, requests: vec![request].into() }
    };
    load::once(&request("")).await?;
    Ok((process, request(settings)))
}

/// A gateway that runs.
pub(crate) struct Gateway {
    pub(crate) process: Process,
    pub(crate) files: Files,
    /// Address of the HTTP/1.1 listener.
    address: SocketAddr,
    /// Address of the TLS listener.
    pub(crate) tls: SocketAddr,
    setup: Setup,
    keys: Vec<String>,
    _directory: tempfile::TempDir,
}

impl Gateway {
    /// Starts one with its accounts and keys.
    pub(crate) async fn start(setup: Setup, upstream: &Upstream) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let files = config::write(directory.path(), setup, upstream.address)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.arg("serve").arg("--routes").arg(&files.routes);
        command.arg("--models").arg(&files.models).arg("--ready-json");
        // The access log is written, as in production, and goes nowhere.
        let process = Process::start(command.stderr(Stdio::null()))?;
        let listener = |number: usize, scheme: &str| -> anyhow::Result<SocketAddr> {
            let url = process.ready["listeners"][number].as_str().context("no listener")?;
            Ok(url.trim_start_matches(scheme).parse()?)
        };
        let (address, tls) = (listener(0, "http://")?, listener(1, "https://")?);
        let admin_url = process.ready_field("admin_url")?;
        let keys = account::keys(admin_url, setup.accounts, config::KEYS_PER_ACCOUNT).await?;
        let gateway = Self { process, files, address, tls, setup, keys, _directory: directory };
        load::once(&gateway.aim(false)).await?;
        Ok(gateway)
    }

    /// Chats that between them use every model and every key.
    pub(crate) fn chats(&self, stream: bool) -> impl Iterator<Item = (&str, Vec<u8>)> {
        let keys = self.keys.iter().map(String::as_str).cycle();
        let bodies = (0..self.setup.models)
            .cycle()
            .map(move |number| body::chat(&config::model(number), stream, 0));
        keys.zip(bodies).take(self.setup.models.max(self.keys.len()))
    }

    /// The same for HTTP/1.1.
    pub(crate) fn aim(&self, stream: bool) -> Aim {
        let chats = self.chats(stream);
        let requests = chats.map(|(key, body)| http::post(PATH, key, "application/json", &body));
        Aim { address: self.address, requests: requests.collect() }
    }

    /// A series of the metrics that has no labels.
    pub(crate) async fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let url = format!("{}/metrics", self.process.ready_field("admin_url")?);
        let request = reqwest::Client::new().get(url).bearer_auth(account::ADMIN_TOKEN);
        let text = request.send().await?.error_for_status()?.text().await?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.with_context(|| format!("no {name} in the metrics"))?.parse()?)
    }
}
