//! Counters: callgrind, strace, and the kernel's own figures of each thread.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::callgrind::CallgrindCounts;
use super::load::{self, Aim};
use super::process::Process;

/// Time for writes behind a request, which are part of its cost.
pub(crate) const AFTERMATH: Duration = Duration::from_millis(700);
/// Requests before any that counts, for each connection: connections are made, and memory is.
const WARM_UP: usize = 10;
/// Time that strace takes to attach to all threads.
const ATTACH: Duration = Duration::from_millis(500);
/// System calls that have the disk take what was written.
const FLUSHING: [&str; 4] = ["fsync", "fdatasync", "pwritev2", "sync_file_range"];

/// Arrival pattern of the requests.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// On so many connections, the next when the answer to the last has come.
    Closed { connections: usize },
    /// So many a second, whatever the answers do.
    Paced { per_second: u32 },
}

/// A program, and the requests of which each is counted.
pub(crate) struct Trial<'a> {
    /// Starts the program below a tool; without words, by itself.
    pub(crate) start: &'a dyn Fn(&[&str]) -> anyhow::Result<Process>,
    /// The request to it.
    pub(crate) aim: &'a dyn Fn(&Process) -> anyhow::Result<Aim>,
    pub(crate) load: Load,
    /// Number of requests that are counted.
    pub(crate) requests: usize,
}

/// Counts for one request; `None` where a tool did not count.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) instructions: Option<f64>,
    pub(crate) allocations: Option<f64>,
    pub(crate) calls: Option<f64>,
    /// Times that a thread of the process slept and was woken.
    pub(crate) wake_ups: Option<f64>,
    pub(crate) cpu_us: Option<f64>,
    /// System calls by name, the most frequent first.
    pub(crate) by_name: Vec<(String, f64)>,
    /// Wake-ups by the thread's name, the most frequent first.
    pub(crate) by_thread: Vec<(String, f64)>,
}

impl Counts {
    /// System calls that wait for the disk.
    pub(crate) fn flushes(&self) -> Option<f64> {
        let flushing = self.by_name.iter().filter(|(name, _)| FLUSHING.contains(&name.as_str()));
        self.calls.map(|_| flushing.map(|(_, calls)| calls).sum())
    }
}

/// Clients of a load.
enum Clients {
    Closed(load::Connections),
    Paced(Aim, u32),
}

impl Clients {
    /// Connects them, and has each ask a few times.
    async fn warmed_up(trial: &Trial<'_>, process: &Process) -> anyhow::Result<Self> {
        let aim = &(trial.aim)(process)?;
        match trial.load {
            Load::Closed { connections } => {
                let mut open = load::Connections::open(aim, connections).await?;
                open.exchange(connections * WARM_UP).await?;
                Ok(Self::Closed(open))
            }
            Load::Paced { per_second } => {
                let mut clients = Self::Paced(aim.clone(), per_second);
                clients.ask(usize::try_from(per_second)?).await?;
                Ok(clients)
            }
        }
    }

    async fn ask(&mut self, requests: usize) -> anyhow::Result<()> {
        match self {
            Self::Closed(open) => open.exchange(requests).await,
            Self::Paced(aim, per_second) => {
                let (aim, per_second) = (aim.clone(), *per_second);
                let seconds = requests as u64 / u64::from(per_second);
                let time = Duration::from_secs(seconds);
                let paced = move || load::open(&aim, per_second, time);
                let latencies = tokio::task::spawn_blocking(paced).await??;
                ensure!(latencies.failed == 0, "{} requests failed", latencies.failed);
                Ok(())
            }
        }
    }
}

/// Instructions and allocations, and where callgrind's file is.
pub(crate) async fn callgrind(trial: &Trial<'_>, counts: &mut Counts) -> anyhow::Result<PathBuf> {
    let directory = tempfile::tempdir()?.keep();
    let file = directory.join("callgrind.out");
    let out = format!("--callgrind-out-file={}", file.display());
    let valgrind = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", &out];
    let process = (trial.start)(&valgrind).context("valgrind counts: apt-get install valgrind")?;
    let mut clients = Clients::warmed_up(trial, &process).await?;
    tokio::time::sleep(AFTERMATH).await;
    let control = |on: &str| {
        let id = process.id().to_string();
        let command = Command::new("callgrind_control").args(["-i", on, &id]).output();
        ensure!(command?.status.success(), "callgrind_control cannot turn counting {on}");
        anyhow::Ok(())
    };
    control("on")?;
    clients.ask(trial.requests).await?;
    tokio::time::sleep(AFTERMATH).await;
    control("off")?;
    drop(clients);
    process.stop()?;
    let counted = CallgrindCounts::read(&std::fs::read_to_string(&file)?);
    let counted = counted.context("callgrind has counted nothing")?;
    counts.instructions = Some(counted.instructions as f64 / trial.requests as f64);
    counts.allocations = Some(counted.allocations as f64 / trial.requests as f64);
    Ok(file)
}

/// System calls.
pub(crate) async fn strace(trial: &Trial<'_>, counts: &mut Counts) -> anyhow::Result<()> {
    let process = (trial.start)(&[])?;
    let mut clients = Clients::warmed_up(trial, &process).await?;
    let file = tempfile::NamedTempFile::new()?;
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-qq", "-p", &process.id().to_string(), "-o"]).arg(file.path());
    let strace = strace.stderr(Stdio::null()).spawn();
    let mut strace = strace.context("strace counts: apt-get install strace")?;
    tokio::time::sleep(ATTACH).await;
    clients.ask(trial.requests).await?;
    tokio::time::sleep(AFTERMATH).await;
    let ended = Command::new("kill").args(["-s", "INT", &strace.id().to_string()]).status();
    ensure!(ended?.success(), "strace has ended before");
    strace.wait()?;
    drop(clients);
    process.stop()?;
    let mut by_name = Vec::new();
    for line in std::fs::read_to_string(file.path())?.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        // % time, seconds, µs a call, calls, errors if there are any, name.
        let (Some(name), Some(Ok(calls))) = (words.last(), words.get(3).map(|it| it.parse()))
        else {
            continue;
        };
        let calls: f64 = calls;
        by_name.push(((*name).to_owned(), calls / trial.requests as f64));
    }
    by_name.retain(|(name, _)| name != "total");
    by_name.sort_by(|a, b| f64::total_cmp(&b.1, &a.1));
    ensure!(!by_name.is_empty(), "strace has counted nothing: it may not attach to processes here");
    counts.calls = Some(by_name.iter().map(|(_, calls)| calls).sum());
    counts.by_name = by_name;
    Ok(())
}

/// Wake-ups, by thread.
pub(crate) async fn wake_ups(trial: &Trial<'_>, counts: &mut Counts) -> anyhow::Result<()> {
    let process = (trial.start)(&[])?;
    let mut clients = Clients::warmed_up(trial, &process).await?;
    let before = sleeps(&process)?;
    clients.ask(trial.requests).await?;
    tokio::time::sleep(AFTERMATH).await;
    let after = sleeps(&process)?;
    drop(clients);
    process.stop()?;
    let mut by_thread: BTreeMap<String, f64> = BTreeMap::new();
    for (thread, (name, slept)) in after {
        let earlier = before.get(&thread).map_or(0, |(_, slept)| *slept);
        let woken = slept.saturating_sub(earlier) as f64 / trial.requests as f64;
        *by_thread.entry(name).or_default() += woken;
    }
    let mut by_thread: Vec<_> = by_thread.into_iter().collect();
    by_thread.sort_by(|a, b| f64::total_cmp(&b.1, &a.1));
    counts.wake_ups = Some(by_thread.iter().map(|(_, woken)| woken).sum());
    counts.by_thread = by_thread;
    Ok(())
}

/// Sleeps of each thread so far, by thread id: its name, and the count.
fn sleeps(process: &Process) -> anyhow::Result<HashMap<String, (String, u64)>> {
    let mut threads = HashMap::new();
    for entry in std::fs::read_dir(format!("/proc/{}/task", process.id()))? {
        let entry = entry?;
        // A thread may end while it is looked at.
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let name = field("Name:").unwrap_or_default().trim().to_owned();
        let slept = field("voluntary_ctxt_switches:").unwrap_or_default().trim().parse()?;
        threads.insert(entry.file_name().to_string_lossy().into_owned(), (name, slept));
    }
    Ok(threads)
}
