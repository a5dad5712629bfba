//! Thousands of streams that are open at one time: the memory of each, in the gateway and in the
//! smallest possible Pingora proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::config::Setup;
use crate::gateway::{self, Gateway, Upstream};
use crate::report::{Figures, Measure};
use crate::rig::http::Response;
use crate::rig::load::Aim;
use crate::rig::process::Process;

/// Streams at one time.
pub(crate) const STREAMS: usize = 5_000;
/// Eight pieces, 4 s apart: a stream lasts 28 s, in which all the others are opened.
const SETUP: Setup = Setup { upstream: "/sim:blind=off;chunks=8;interval-ms=4000", ..Setup::PLAIN };
/// Streams that wait for their first piece at one time: no queue of connections overflows.
const OPENING: usize = 128;
/// Files that a gateway has open beside two for each stream: listeners, the ledger, metrics.
const OTHER_FILES: usize = 1_000;
/// Size of a read: larger than any piece.
const READ_BYTES: usize = 4 * 1024;
/// Longest time for a stream.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between two readings of the memory.
const SAMPLE: Duration = Duration::from_millis(200);
/// Rest of a gateway before its memory is read for the first time.
const REST: Duration = Duration::from_secs(1);

/// State of the streams.
#[derive(Default)]
struct Progress {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

/// Looks whether a process may have as many files open as the streams need.
///
/// # Errors
/// It may not.
pub(crate) fn check_open_files() -> anyhow::Result<()> {
    let limits = std::fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()).context("no limit of files")?;
    let needed = 2 * STREAMS + OTHER_FILES;
    let enough = soft == "unlimited" || soft.parse::<usize>()? >= needed;
    ensure!(
        enough,
        "`ulimit -n` is {soft}; {STREAMS} streams need {needed}: run `ulimit -n {needed}` first"
    );
    Ok(())
}

/// Opens the streams on proxies that have done nothing else.
pub(crate) async fn measure(upstream: &Upstream, figures: &mut Figures) -> anyhow::Result<()> {
    let (process, aim) = gateway::floor(upstream, SETUP.upstream).await?;
    let floor = open(&process, &aim).await?;
    figures.add(Measure::FloorStreamRss, floor.open_kib);
    process.stop()?;
    let gateway = Gateway::start(SETUP, upstream).await?;
    let streams = open(&gateway.process, &gateway.aim(true)).await?;
    figures.add(Measure::StreamRss, streams.open_kib);
    figures.add(Measure::StreamsBroken, f64::from(streams.broken));
    gateway.process.stop()
}

/// Figures of the streams of one proxy.
struct Streams {
    /// Memory of each while all are open.
    open_kib: f64,
    /// Streams without their end.
    broken: u32,
}

/// Opens the streams and reads each to its end.
async fn open(process: &Process, aim: &Aim) -> anyhow::Result<Streams> {
    tokio::time::sleep(REST).await;
    let before_mb = process.rss_mb()?;
    let progress = Arc::new(Progress::default());
    let opening = Arc::new(Semaphore::new(OPENING));
    let mut streams = JoinSet::new();
    for number in 0..STREAMS {
        let (aim, opening) = (aim.clone(), Arc::clone(&opening));
        let progress = Arc::clone(&progress);
        streams.spawn(async move {
            let stream = stream(&aim, number, &opening, &progress);
            let result = tokio::time::timeout(TIMEOUT, stream).await;
            progress.ended.fetch_add(1, Ordering::Relaxed);
            result.context("a stream without an end")?
        });
    }
    let open_mb = watch(process, &progress).await;
    let (mut broken, mut why) = (0, None);
    while let Some(stream) = streams.join_next().await {
        if let Err(error) = stream? {
            broken += 1;
            why.get_or_insert(error);
        }
    }
    if let Some(why) = why {
        eprintln!("{broken} of {STREAMS} streams broke, one of them so: {why:#}");
    }
    let open_kib = (open_mb? - before_mb) * 1e6 / 1024.0 / STREAMS as f64;
    Ok(Streams { open_kib, broken })
}

/// The most memory, in MB, from when all streams are open until the first ends.
async fn watch(process: &Process, progress: &Progress) -> anyhow::Result<f64> {
    let mut most_mb: Option<f64> = None;
    loop {
        tokio::time::sleep(SAMPLE).await;
        let rss_mb = process.rss_mb()?;
        let begun = progress.begun.load(Ordering::Relaxed);
        if progress.ended.load(Ordering::Relaxed) > 0 {
            return most_mb.with_context(|| {
                format!("a stream had ended when only {begun} of {STREAMS} had begun")
            });
        }
        if begun == STREAMS {
            most_mb = Some(most_mb.unwrap_or_default().max(rss_mb));
        }
    }
}

/// One stream on a connection of its own, read to its end.
async fn stream(
    aim: &Aim,
    number: usize,
    opening: &Semaphore,
    progress: &Progress,
) -> anyhow::Result<()> {
    let permit = opening.acquire().await?;
    let mut socket = TcpStream::connect(aim.address).await?;
    socket.write_all(aim.request(number)).await?;
    let mut permit = Some(permit);
    let mut response = Response::default();
    let mut buffer = vec![0; READ_BYTES];
    while !response.is_complete() {
        let read = socket.read(&mut buffer).await?;
        ensure!(read > 0, "the connection closed before the stream was complete");
        response.feed(buffer.get(..read).unwrap_or_default())?;
        if response.events > 0 && permit.take().is_some() {
            progress.begun.fetch_add(1, Ordering::Relaxed);
        }
    }
    ensure!(response.ends_with(b"data: [DONE]\n\n"), "a stream without its last event");
    Ok(())
}
