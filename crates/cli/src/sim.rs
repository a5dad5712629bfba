//! `tollgate sim`: simulated upstreams as a separate process.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::terminal;
use tollgate_simulator::{Behaviour, Sim, SimOptions};

/// Run simulated upstreams that answer like a provider, or fail like one.
#[derive(Debug, Args)]
pub(super) struct SimCommand {
    /// Listening address; port 0 takes any free port.
    #[arg(long, default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 9000)), value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Setting, such as `delay-ms=20`, `chunks=50` or `fault=status=503`. Requests override it with
    /// headers such as `x-sim-delay-ms: 20`, base URLs with `/sim:delay-ms=20/v1`.
    #[arg(value_name = "NAME=VALUE")]
    settings: Vec<String>,
}

impl SimCommand {
    /// Run until SIGINT or SIGTERM. Prints one JSON line with the address when ready.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut behaviour = Behaviour::default();
        for setting in &self.settings {
            behaviour.set_pair(setting)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            // Before the address is printed: whoever reads it may send a signal at once.
            let (mut interrupt, mut terminate) =
                (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            let sim = Sim::start(SimOptions { listen: self.listen, behaviour })
                .with_context(|| format!("cannot listen on {}", self.listen))?;
            let line = serde_json::json!({"address": sim.addr().to_string()});
            writeln!(terminal::out(), "{line}").context("cannot write to standard output")?;
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}
