//! Subjects: the upstream itself, the floors, tollgate, and peers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::config::{self, Files};
use crate::peer::{Peer, READY_TIMEOUT};
use crate::rig::floor::{self, FloorKind};
use crate::rig::load::{self, Aim};
use crate::rig::process::{Process, below};
use crate::rig::{account, http};
use crate::work::{self, Work};

/// The server that answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// The simulated upstream, asked directly.
    Direct,
    /// The smallest Pingora proxy.
    Floor,
    /// The same, which reads a body to its end and finds its model.
    Buffered,
    /// The gateway.
    Tollgate,
    /// The peer with this place among those given.
    Peer(usize),
}

/// Processes and files of the whole run: the upstream, and tollgate's files with an account in its ledger.
pub(crate) struct Bench {
    _sim: Process,
    upstream: SocketAddr,
    gateway: Gateway,
    peers: Vec<Peer>,
}

/// Tollgate while it does not run.
struct Gateway {
    program: PathBuf,
    files: Files,
    key: String,
    directory: tempfile::TempDir,
}

/// A proxy that runs.
pub(crate) struct Running {
    pub(crate) subject: Subject,
    pub(crate) process: Process,
    /// From the start of the process to the first answer.
    pub(crate) start: Duration,
    address: SocketAddr,
    key: Option<String>,
    /// Models of the works that it does not answer.
    unsupported: Vec<&'static str>,
}

impl Bench {
    /// Starts the upstream, and gives tollgate, which is this build or `program`, an account.
    pub(crate) async fn prepare(
        program: Option<PathBuf>,
        peers: &[(String, PathBuf)],
    ) -> anyhow::Result<Self> {
        // The upstream is of this build whatever is measured.
        let own = env!("CARGO_BIN_EXE_tollgate");
        let program = program.unwrap_or_else(|| own.into());
        let mut command = Command::new(own);
        let sim = Process::start(command.args(["sim", "--listen", "127.0.0.1:0", "blind=on"]))?;
        let upstream = sim.ready_field("address")?.parse()?;
        let gateway = Gateway::prepare(program, upstream).await?;
        let peers = peers.iter().map(|(name, script)| Peer::new(name, script, upstream));
        Ok(Self { _sim: sim, upstream, gateway, peers: peers.collect::<anyhow::Result<_>>()? })
    }

    /// The proxies, in an order that changes from round to round.
    pub(crate) fn order(&self, round: u32) -> Vec<Subject> {
        let mut order = vec![Subject::Floor, Subject::Buffered, Subject::Tollgate];
        order.extend((0..self.peers.len()).map(Subject::Peer));
        let turn = round as usize % order.len();
        order.rotate_left(turn);
        order
    }

    /// The columns of the table with their names.
    pub(crate) fn columns(&self) -> Vec<(Subject, String)> {
        let mut columns = vec![
            (Subject::Direct, "direct".to_owned()),
            (Subject::Floor, "floor".to_owned()),
            (Subject::Buffered, "buffered".to_owned()),
            (Subject::Tollgate, "tollgate".to_owned()),
        ];
        let peers = self.peers.iter().enumerate();
        columns.extend(peers.map(|(at, peer)| (Subject::Peer(at), peer.name.clone())));
        columns
    }

    /// The directory with the ledger, whose disk is flushed.
    pub(crate) fn directory(&self) -> &std::path::Path {
        self.gateway.directory.path()
    }

    /// Starts a proxy and waits for its first answer.
    pub(crate) async fn start(&self, subject: Subject) -> anyhow::Result<Running> {
        let process = self.spawn(subject, &[])?;
        let (address, key) = self.contact(subject, &process)?;
        let (start, unsupported) = (Duration::ZERO, Vec::new());
        let mut running = Running { subject, process, start, address, key, unsupported };
        let aim = running.aim(&work::INSTANT);
        match subject {
            Subject::Peer(_) => wait_until_ready(&running.process, &aim).await?,
            _ => load::once(&aim).await.context("no first answer")?,
        }
        running.start = running.process.started.elapsed();
        if let Subject::Peer(_) = subject {
            running.try_all().await;
        }
        Ok(running)
    }

    /// Starts a proxy below a tool, by itself if `tool` has no words, and waits until it listens.
    pub(crate) fn spawn(&self, subject: Subject, tool: &[&str]) -> anyhow::Result<Process> {
        let own = match subject {
            Subject::Direct => anyhow::bail!("the upstream runs already"),
            Subject::Floor => floor::command(FloorKind::Pass, self.upstream)?,
            Subject::Buffered => floor::command(FloorKind::Buffer, self.upstream)?,
            Subject::Tollgate => self.gateway.command(),
            Subject::Peer(_) => return self.peer(subject)?.spawn(tool),
        };
        // The access log is written, as in production, and goes nowhere.
        Process::start(below(own, tool).stderr(Stdio::null()))
    }

    /// A request to a started process.
    pub(crate) fn aim(
        &self,
        subject: Subject,
        process: &Process,
        work: &Work,
    ) -> anyhow::Result<Aim> {
        let (address, key) = self.contact(subject, process)?;
        Ok(aim(address, &path(subject, work), key.as_deref(), work))
    }

    /// The address and the key through which a started process is called.
    fn contact(
        &self,
        subject: Subject,
        process: &Process,
    ) -> anyhow::Result<(SocketAddr, Option<String>)> {
        match subject {
            Subject::Tollgate => {
                let url = process.ready_field("base_url")?.trim_start_matches("http://");
                Ok((url.parse()?, Some(self.gateway.key.clone())))
            }
            Subject::Peer(_) => Ok((self.peer(subject)?.address, None)),
            _ => Ok((process.ready_field("address")?.parse()?, None)),
        }
    }

    fn peer(&self, subject: Subject) -> anyhow::Result<&Peer> {
        let Subject::Peer(at) = subject else { anyhow::bail!("{subject:?} is no peer") };
        self.peers.get(at).context("no such peer")
    }

    /// A request that goes to the upstream without a proxy.
    pub(crate) fn direct(&self, work: &Work) -> Aim {
        aim(self.upstream, &work.upstream_path(), None, work)
    }
}

impl Gateway {
    async fn prepare(program: PathBuf, upstream: SocketAddr) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let files = config::write(directory.path(), upstream)?;
        let mut gateway = Self { program, files, key: String::new(), directory };
        // Not measured, so what is wrong with it can be shown.
        let process = Process::start(gateway.command().args(["--log", "warn"]))?;
        let keys = account::keys(process.ready_field("admin_url")?, 1, 1).await?;
        gateway.key = keys.into_iter().next().context("no key")?;
        process.stop()?;
        Ok(gateway)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("--routes").arg(&self.files.routes);
        command.arg("--models").arg(&self.files.models).arg("--ready-json");
        command
    }
}

impl Running {
    /// A request to this proxy. The body is the same for all.
    pub(crate) fn aim(&self, work: &Work) -> Aim {
        aim(self.address, &path(self.subject, work), self.key.as_deref(), work)
    }

    /// True if it answers such requests. A buffered floor reads JSON only.
    pub(crate) fn supports(&self, work: &Work) -> bool {
        let is_form = work.customers == work::Operation::ImageEdit;
        let is_unreadable = is_form && self.subject == Subject::Buffered;
        !is_unreadable && !self.unsupported.contains(&work.model)
    }

    /// Finds out which works it does not answer.
    async fn try_all(&mut self) {
        for work in work::ALL {
            if load::once(&self.aim(work)).await.is_err() {
                self.unsupported.push(work.model);
            }
        }
    }
}

/// Waits for a peer's first answer to a chat.
async fn wait_until_ready(process: &Process, aim: &Aim) -> anyhow::Result<()> {
    while let Err(error) = load::once(aim).await {
        let is_late = process.started.elapsed() > READY_TIMEOUT;
        anyhow::ensure!(!is_late, "a peer does not answer /v1/chat/completions: {error:#}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// The path of a request to a subject.
fn path(subject: Subject, work: &Work) -> String {
    match subject {
        Subject::Tollgate | Subject::Peer(_) => work.customers.path().to_owned(),
        Subject::Direct | Subject::Floor | Subject::Buffered => work.upstream_path(),
    }
}

fn aim(address: SocketAddr, path: &str, key: Option<&str>, work: &Work) -> Aim {
    // The floor gets the same bytes as tollgate, a key's length of authorization included.
    let key = key.unwrap_or("sk-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH");
    let content_type = work.customers.content_type();
    let request = http::post(path, key, &content_type, &work.body());
    Aim { address, requests: vec![request].into() }
}
