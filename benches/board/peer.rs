//! Another gateway, started by a script.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::rig::process::Process;
use crate::work;

/// A gateway that is measured beside tollgate.
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    script: PathBuf,
    upstream: SocketAddr,
    /// For its files, with the list of models in it.
    directory: tempfile::TempDir,
}

/// Time in which a peer must listen and answer: below callgrind a large program starts slowly.
pub(crate) const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// The list of models in a peer's directory.
const MODELS: &str = "models.tsv";

impl Peer {
    /// Chooses its port and writes its list of models.
    pub(crate) fn new(name: &str, script: &Path, upstream: SocketAddr) -> anyhow::Result<Self> {
        let script = script.canonicalize();
        let script = script.with_context(|| format!("no start script of {name}"))?;
        let directory = tempfile::tempdir()?;
        let mut models = String::new();
        for work in work::ALL {
            let protocol = match (work.upstreams.protocol(), work.upstreams.path()) {
                ("openai", "/v1/responses") => "responses",
                (protocol, _) => protocol,
            };
            models += &format!("{}\t{protocol}\thttp://{upstream}{}\n", work.model, work.settings);
        }
        std::fs::write(directory.path().join(MODELS), models)?;
        // Free now, and nobody else asks for ports here.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        Ok(Self { name: name.to_owned(), address, script, upstream, directory })
    }

    /// Runs the script, which becomes the peer, and waits until it listens.
    pub(crate) fn spawn(&self, tool: &[&str]) -> anyhow::Result<Process> {
        let mut command = Command::new(&self.script);
        command.current_dir(self.directory.path());
        command.env("UPSTREAM", format!("http://{}", self.upstream));
        command.env("PORT", self.address.port().to_string());
        command.env("MODELS", self.directory.path().join(MODELS));
        command.env("TOOL", tool.join(" "));
        let process = Process::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        while TcpStream::connect(self.address).is_err() {
            let is_late = process.started.elapsed() > READY_TIMEOUT;
            anyhow::ensure!(!is_late, "{} does not listen on {}", self.name, self.address);
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(process)
    }
}
