//! Subjects: the upstream itself, the floor, and tollgate.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::config::{self, Files};
use crate::rig::load::{self, Aim};
use crate::rig::process::Process;
use crate::rig::{account, http};
use crate::work::Work;

/// The server that answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// The simulated upstream, asked directly.
    Direct,
    /// The smallest Pingora proxy.
    Floor,
    /// The gateway.
    Tollgate,
}

impl Subject {
    pub(crate) const ALL: [Self; 3] = [Self::Direct, Self::Floor, Self::Tollgate];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Floor => "floor",
            Self::Tollgate => "tollgate",
        }
    }
}

/// Processes and files of the whole run: the upstream, and tollgate's files with an account in its ledger.
pub(crate) struct Bench {
    _sim: Process,
    upstream: SocketAddr,
    gateway: Option<Gateway>,
}

/// Tollgate while it does not run.
struct Gateway {
    files: Files,
    key: String,
    _directory: tempfile::TempDir,
}

/// A proxy that runs.
pub(crate) struct Running {
    pub(crate) subject: Subject,
    pub(crate) process: Process,
    /// From the start of the process to the first answer.
    pub(crate) start: Duration,
    address: SocketAddr,
    key: Option<String>,
}

impl Bench {
    /// Starts the upstream, and gives tollgate an account.
    pub(crate) async fn prepare(floor_only: bool) -> anyhow::Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let sim = Process::start(command.args(["sim", "--listen", "127.0.0.1:0", "blind=on"]))?;
        let upstream = sim.ready_field("address")?.parse()?;
        let gateway = if floor_only { None } else { Some(Gateway::prepare(upstream).await?) };
        Ok(Self { _sim: sim, upstream, gateway })
    }

    /// Starts a proxy; `None` for one that is left out.
    pub(crate) async fn start(&self, subject: Subject) -> anyhow::Result<Option<Running>> {
        let (process, address, key) = match (subject, &self.gateway) {
            (Subject::Direct, _) | (Subject::Tollgate, None) => return Ok(None),
            (Subject::Floor, _) => {
                let mut command = Command::new(std::env::current_exe()?);
                let process = Process::start(command.args(["floor", &self.upstream.to_string()]))?;
                let address = process.ready_field("address")?.parse()?;
                (process, address, None)
            }
            (Subject::Tollgate, Some(gateway)) => {
                let process = gateway.start()?;
                let url = process.ready_field("base_url")?;
                let address = url.trim_start_matches("http://").parse()?;
                (process, address, Some(gateway.key.clone()))
            }
        };
        let mut running = Running { subject, process, start: Duration::ZERO, address, key };
        load::once(&running.aim(Work::Instant)).await.context(subject.name())?;
        running.start = running.process.started.elapsed();
        Ok(Some(running))
    }

    /// A request that goes to the upstream without a proxy.
    pub(crate) fn direct(&self, work: Work) -> Aim {
        aim(self.upstream, &work.upstream_path(), None, work)
    }
}

impl Gateway {
    async fn prepare(upstream: SocketAddr) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let files = config::write(directory.path(), upstream)?;
        let mut gateway = Self { files, key: String::new(), _directory: directory };
        // Not measured, so what is wrong with it can be shown.
        let process = Process::start(gateway.command().args(["--log", "warn"]))?;
        let keys = account::keys(process.ready_field("admin_url")?, 1, 1).await?;
        gateway.key = keys.into_iter().next().context("no key")?;
        process.stop()?;
        Ok(gateway)
    }

    /// Starts it to be measured. The access log is written, as in production, and goes nowhere.
    fn start(&self) -> anyhow::Result<Process> {
        Process::start(self.command().stderr(Stdio::null()))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.arg("serve").arg("--routes").arg(&self.files.routes);
        command.arg("--models").arg(&self.files.models).arg("--ready-json");
        command
    }
}

impl Running {
    /// A request to this proxy. The body is the same for all.
    pub(crate) fn aim(&self, work: Work) -> Aim {
        let path = match self.subject {
            Subject::Tollgate => work.operation().path().to_owned(),
            Subject::Direct | Subject::Floor => work.upstream_path(),
        };
        aim(self.address, &path, self.key.as_deref(), work)
    }
}

fn aim(address: SocketAddr, path: &str, key: Option<&str>, work: Work) -> Aim {
    // The floor gets the same bytes as tollgate, a key's length of authorization included.
    let key = key.unwrap_or("sk-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH");
    let content_type = work.operation().content_type();
    let request = http::post(path, key, &content_type, &work.body());
    Aim { address, requests: vec![request].into() }
}
