//! Subjects of the counts: the floors, and builds of the gateway.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::Context as _;

use crate::rig::dialect::Dialect;
use crate::rig::floor::{self, FloorKind};
use crate::rig::load::Aim;
use crate::rig::process::{Process, below};
use crate::rig::{account, gateway, http};
use crate::work::{self, Work};

/// Pieces of content in a stream, and the time between two: long enough that each goes out by itself.
const STREAMED: &str = "/sim:blind=off;chunks=100;interval-ms=10";
/// The dialects whose upstreams have models.
const UPSTREAMS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

/// A program that is counted.
pub(crate) enum Subject {
    /// The smallest Pingora proxy, in front of this upstream.
    Floor(FloorKind, SocketAddr),
    /// A build of the gateway.
    Gateway(Gateway),
}

/// A build of the gateway: its program, its files, and a key.
pub(crate) struct Gateway {
    program: PathBuf,
    directory: tempfile::TempDir,
    key: String,
}

impl Subject {
    /// Writes the gateway's files, and has it make an account.
    pub(crate) async fn gateway(program: PathBuf, upstream: SocketAddr) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let (mut upstreams, mut models) = ("upstreams:\n".to_owned(), "models:\n".to_owned());
        for (dialect, is_stream) in
            UPSTREAMS.into_iter().flat_map(|dialect| [(dialect, false), (dialect, true)])
        {
            let (name, settings) =
                (work::model(dialect, is_stream), if is_stream { STREAMED } else { "" });
            upstreams += &gateway::upstream_of(dialect, name, &upstream.to_string(), settings);
            models += &gateway::model_of(dialect, name);
        }
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
            Self::Floor(FloorKind::Pass, _) => "floor".to_owned(),
            Self::Floor(FloorKind::Buffer, _) => "buffered".to_owned(),
            Self::Gateway(gateway) => {
                let name = gateway.program.file_name().unwrap_or_default();
                name.to_string_lossy().into_owned()
            }
        }
    }

    /// Starts it, below `tool` if there is one. The access log is written, and goes nowhere.
    pub(crate) fn start(&self, tool: &[&str]) -> anyhow::Result<Process> {
        let own = match self {
            Self::Floor(kind, upstream) => floor::command(*kind, *upstream)?,
            Self::Gateway(Gateway { program, directory, .. }) => {
                gateway::command_of(program, directory.path(), &["serve", "--ready-json"])
            }
        };
        Process::start(below(own, tool).stderr(Stdio::null()))
    }

    /// The request of `work` to it. The floors get it as a native one.
    pub(crate) fn aim(&self, process: &Process, work: &Work) -> anyhow::Result<Aim> {
        let path = work.customers.path(work.model(), work.is_stream);
        let (address, path, key) = match self {
            Self::Floor(..) => {
                let settings = if work.is_stream { STREAMED } else { "" };
                // As long as a key of the gateway's.
                let key = "sk-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH";
                (process.ready_field("address")?, format!("{settings}{path}"), key)
            }
            Self::Gateway(gateway) => (process.ready_field("base_url")?, path, &*gateway.key),
        };
        let address = address.trim_start_matches("http://").parse()?;
        let request = http::post(&path, key, "application/json", &work.body());
        Ok(Aim { address, requests: vec![request].into() })
    }
}
