//! Subjects of the counts: the floor, and builds of the gateway.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::rig::load::Aim;
use crate::rig::process::Process;
use crate::rig::{account, gateway, http};
use crate::{STREAM_CHUNKS, STREAM_INTERVAL_MS, Work, body};

/// A program that is counted.
pub(crate) enum Subject {
    /// The smallest Pingora proxy, in front of this upstream.
    Floor(SocketAddr, PathBuf),
    /// A build of the gateway.
    Gateway(Gateway),
}

/// A build of the gateway: its program, its files, and a key.
pub(crate) struct Gateway {
    program: PathBuf,
    directory: tempfile::TempDir,
    key: String,
}

/// Path of the simulated upstream that streams.
fn stream_path() -> String {
    format!("sim:blind=off;chunks={STREAM_CHUNKS};interval-ms={STREAM_INTERVAL_MS}")
}

impl Subject {
    pub(crate) fn floor(upstream: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self::Floor(upstream, std::env::current_exe()?))
    }

    /// Writes the gateway's files, and has it make an account.
    pub(crate) async fn gateway(program: PathBuf, upstream: SocketAddr) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let chat = gateway::openai_upstream(&upstream.to_string());
        let stream = gateway::openai_upstream(&format!("{upstream}/{}", stream_path()));
        let stream = stream.replace("upstreams:\n  u:", "  s:");
        let model = gateway::chat_model();
        let streamed = model.replace("models:\n", "").replace("upstream: u", "upstream: s");
        let streamed = streamed.replacen(&format!("  {}:", gateway::MODEL), "  s:", 1);
        let (upstreams, models) = (format!("{chat}{stream}"), format!("{model}{streamed}"));
        gateway::write_files(directory.path(), "", &upstreams, &models)?;
        let subject = Self::Gateway(Gateway { program, directory, key: String::new() });
        let process = subject.start(&[])?;
        let keys = account::keys(process.ready_field("admin_url")?, 1, 1).await?;
        process.stop()?;
        let Self::Gateway(mut gateway) = subject else { return Ok(subject) };
        gateway.key = keys.into_iter().next().context("no key")?;
        Ok(Self::Gateway(gateway))
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Floor(..) => "floor".to_owned(),
            Self::Gateway(gateway) => {
                let name = gateway.program.file_name().unwrap_or_default();
                name.to_string_lossy().into_owned()
            }
        }
    }

    /// Starts it, below `tool` if there is one. The access log is written, and goes nowhere.
    pub(crate) fn start(&self, tool: &[&str]) -> anyhow::Result<Process> {
        let own = match self {
            Self::Floor(upstream, program) => {
                let mut command = Command::new(program);
                command.args(["floor", &upstream.to_string()]);
                command
            }
            Self::Gateway(Gateway { program, directory, .. }) => {
                gateway::command_of(program, directory.path(), &["serve", "--ready-json"])
            }
        };
        let mut command = match tool.split_first() {
            Some((name, arguments)) => {
                let mut command = Command::new(name);
                command.args(arguments).arg(own.get_program()).args(own.get_args());
                command
            }
            None => own,
        };
        Process::start(command.stderr(Stdio::null()))
    }

    /// The request of `work` to it.
    pub(crate) fn aim(&self, process: &Process, work: &Work) -> anyhow::Result<Aim> {
        let path = "/v1/chat/completions";
        let (address, path, key) = match self {
            Self::Floor(..) => {
                let path =
                    if work.is_stream { format!("/{}{path}", stream_path()) } else { path.into() };
                // As long as a key of the gateway's.
                (
                    process.ready_field("address")?,
                    path,
                    "sk-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH",
                )
            }
            Self::Gateway(gateway) => {
                (process.ready_field("base_url")?, path.into(), &*gateway.key)
            }
        };
        let address = address.trim_start_matches("http://").parse()?;
        let model = if work.is_stream { "s" } else { gateway::MODEL };
        let body = body::chat(model, work.is_stream, work.bytes);
        let request = http::post(&path, key, "application/json", &body);
        Ok(Aim { address, requests: vec![request].into() })
    }
}
