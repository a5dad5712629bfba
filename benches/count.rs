//! What a request takes of the gateway, counted rather than timed: instructions and allocations with
//! callgrind, system calls with strace, and beside them processor time in turns.
//!
//! `cargo bench --bench count` counts with the gateway that was built with it. `-- --gateway FILE`,
//! given more than once, puts several builds beside each other, `-- --keep DIRECTORY` keeps what
//! callgrind has written, for `callgrind_annotate`. Counts hardly depend on the machine or on what else
//! it does. Valgrind has no instructions for SHA-256, and runs one thread at a time: figures compare with
//! others of this command only.
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod rig;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Parser;
use rig::load::{self, Aim};
use rig::process::Process;
use rig::{account, body, gateway, http, machine, median};

/// What is asked while it is counted.
struct Work {
    name: &'static str,
    /// Of the body of a request.
    bytes: usize,
    is_stream: bool,
    connections: usize,
    /// How many requests are counted.
    requests: usize,
}

/// How many pieces of content a stream has, and how much time is between two: none goes out together
/// with the next.
const STREAM_CHUNKS: u32 = 100;
const STREAM_INTERVAL_MS: u32 = 10;

const WORKS: [Work; 4] = [
    Work { name: "1 KiB", bytes: 1 << 10, is_stream: false, connections: 64, requests: 6_400 },
    Work {
        name: "1 KiB, alone",
        bytes: 1 << 10,
        is_stream: false,
        connections: 1,
        requests: 1_500,
    },
    Work { name: "16 KiB", bytes: 16 << 10, is_stream: false, connections: 64, requests: 3_200 },
    Work { name: "100 events", bytes: 1 << 10, is_stream: true, connections: 16, requests: 320 },
];

/// Requests before any that counts, for each connection: connections are made, and memory is.
const WARM_UP: usize = 10;
/// What is written later is part of a request's cost.
const AFTERMATH: Duration = Duration::from_millis(700);
/// How long a slice of a load is while processor time is taken.
const SLICE: Duration = Duration::from_secs(2);
/// How long strace takes to attach to all threads.
const ATTACH: Duration = Duration::from_millis(500);
/// What the allocator is asked with. It calls itself too, which is not counted.
const ALLOCATING: [&str; 8] = [
    "mi_malloc",
    "mi_zalloc",
    "mi_calloc",
    "mi_realloc",
    "mi_malloc_aligned",
    "mi_zalloc_aligned",
    "mi_calloc_aligned",
    "mi_realloc_aligned",
];

/// Counts what a request takes.
#[derive(Debug, Parser)]
struct Options {
    /// A gateway to count with, instead of the one that was built with this.
    #[arg(long, value_name = "FILE")]
    gateway: Vec<PathBuf>,
    /// Keep what callgrind has written here.
    #[arg(long, value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
    /// Count only requests whose name begins with this.
    #[arg(long, default_value = "")]
    only: String,
    /// How many slices of processor time are taken of each load; 0 leaves them out.
    #[arg(long, default_value_t = 5)]
    slices: usize,
    /// Leave callgrind out, which takes most of the time.
    #[arg(long)]
    no_callgrind: bool,
    /// What `cargo bench` says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What a request came to; nothing where it was not counted.
#[derive(Default)]
struct Counts {
    instructions: Option<f64>,
    allocations: Option<f64>,
    calls: Option<f64>,
    cpu_us: Option<f64>,
    /// System calls by name, the most frequent first.
    by_name: Vec<(String, f64)>,
}

/// A gateway that is counted with: its program, its files, and a key.
struct Subject {
    program: PathBuf,
    directory: tempfile::TempDir,
    key: String,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(bench(&options))
}

async fn bench(options: &Options) -> anyhow::Result<ExitCode> {
    println!("{}", machine::Machine::here("count"));
    let mut programs = options.gateway.clone();
    let first = programs.first().cloned().unwrap_or(env!("CARGO_BIN_EXE_tollgate").into());
    if programs.is_empty() {
        programs.push(first.clone());
    }
    let mut sim = Command::new(first);
    let sim = Process::start(sim.args(["sim", "--listen", "127.0.0.1:0", "blind=on"]))?;
    let mut subjects = Vec::new();
    for program in programs {
        subjects.push(Subject::prepare(program, sim.said("address")?).await?);
    }
    for work in WORKS.iter().filter(|work| work.name.starts_with(&options.only)) {
        let mut all: Vec<Counts> = Vec::new();
        for (number, subject) in subjects.iter().enumerate() {
            let mut counts = Counts::default();
            if !options.no_callgrind {
                let kept = subject.callgrind(work, &mut counts).await?;
                if let Some(directory) = &options.keep {
                    let name = format!("{number}.{}", work.name.replace([' ', ','], "-"));
                    std::fs::copy(kept, directory.join(name))?;
                }
            }
            subject.strace(work, &mut counts).await?;
            all.push(counts);
        }
        if options.slices > 0 {
            take_turns(&subjects, work, options.slices, &mut all).await?;
        }
        print(work, &subjects, &all);
    }
    Ok(ExitCode::SUCCESS)
}

impl Subject {
    /// Writes its files, and has it make an account.
    async fn prepare(program: PathBuf, upstream: &str) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let chat = gateway::openai_upstream(upstream);
        let pieces =
            format!("sim:blind=off;chunks={STREAM_CHUNKS};interval-ms={STREAM_INTERVAL_MS}");
        let stream = gateway::openai_upstream(&format!("{upstream}/{pieces}"));
        let stream = stream.replace("upstreams:\n  u:", "  s:");
        let model = gateway::chat_model();
        let streamed = model.replace("models:\n", "").replace("upstream: u", "upstream: s");
        let streamed = streamed.replacen(&format!("  {}:", gateway::MODEL), "  s:", 1);
        gateway::write_files(
            directory.path(),
            "",
            &format!("{chat}{stream}"),
            &format!("{model}{streamed}"),
        )?;
        let mut subject = Self { program, directory, key: String::new() };
        let process = subject.start(&[])?;
        let keys = account::keys(process.said("admin_url")?, 1, 1).await?;
        subject.key = keys.into_iter().next().context("no key")?;
        process.stop()?;
        Ok(subject)
    }

    /// Starts it, below `tool` if there is one. The access log is written, and goes nowhere.
    fn start(&self, tool: &[&str]) -> anyhow::Result<Process> {
        let gateway =
            gateway::command_of(&self.program, self.directory.path(), &["serve", "--ready-json"]);
        let mut command = match tool.split_first() {
            Some((name, arguments)) => {
                let mut command = Command::new(name);
                command.args(arguments).arg(gateway.get_program()).args(gateway.get_args());
                command
            }
            None => gateway,
        };
        Process::start(command.stderr(Stdio::null()))
    }

    fn aim(&self, process: &Process, work: &Work) -> anyhow::Result<Aim> {
        let address = process.said("base_url")?.trim_start_matches("http://").parse()?;
        let model = if work.is_stream { "s" } else { gateway::MODEL };
        let body = body::chat(model, work.is_stream, work.bytes);
        let request = http::post("/v1/chat/completions", &self.key, "application/json", &body);
        Ok(Aim { address, requests: vec![request].into() })
    }

    /// Instructions and allocations, and where callgrind's file is.
    async fn callgrind(&self, work: &Work, counts: &mut Counts) -> anyhow::Result<PathBuf> {
        let file = self.directory.path().join("callgrind.out");
        let out = format!("--callgrind-out-file={}", file.display());
        let valgrind = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", &out];
        let process = self.start(&valgrind).context("valgrind counts instructions")?;
        let aim = self.aim(&process, work)?;
        let mut connections = load::Connections::open(&aim, work.connections).await?;
        connections.exchange(work.connections * WARM_UP).await?;
        tokio::time::sleep(AFTERMATH).await;
        let control = |on: &str| {
            let id = process.id().to_string();
            let command = Command::new("callgrind_control").args(["-i", on, &id]).output();
            ensure!(command?.status.success(), "callgrind_control cannot turn counting {on}");
            anyhow::Ok(())
        };
        control("on")?;
        connections.exchange(work.requests).await?;
        tokio::time::sleep(AFTERMATH).await;
        control("off")?;
        drop(connections);
        process.stop()?;
        let (instructions, allocations) = read_callgrind(&std::fs::read_to_string(&file)?)?;
        counts.instructions = Some(instructions / work.requests as f64);
        counts.allocations = Some(allocations / work.requests as f64);
        Ok(file)
    }

    /// System calls.
    async fn strace(&self, work: &Work, counts: &mut Counts) -> anyhow::Result<()> {
        let process = self.start(&[])?;
        let aim = self.aim(&process, work)?;
        let mut connections = load::Connections::open(&aim, work.connections).await?;
        connections.exchange(work.connections * WARM_UP).await?;
        let file = self.directory.path().join("strace.out");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-c", "-qq", "-p", &process.id().to_string(), "-o"]).arg(&file);
        let Ok(mut strace) = strace.stderr(Stdio::null()).spawn() else { return Ok(()) };
        tokio::time::sleep(ATTACH).await;
        connections.exchange(work.requests).await?;
        let ended = Command::new("kill").args(["-s", "INT", &strace.id().to_string()]).status();
        ensure!(ended?.success(), "strace has ended before");
        strace.wait()?;
        drop(connections);
        process.stop()?;
        let mut by_name = Vec::new();
        for line in std::fs::read_to_string(&file)?.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            // % time, seconds, µs a call, calls, errors if there are any, name.
            let (Some(name), Some(Ok(calls))) = (words.last(), words.get(3).map(|it| it.parse()))
            else {
                continue;
            };
            let calls: f64 = calls;
            by_name.push(((*name).to_owned(), calls / work.requests as f64));
        }
        by_name.retain(|(name, _)| name != "total");
        by_name.sort_by(|a, b| f64::total_cmp(&b.1, &a.1));
        counts.calls = Some(by_name.iter().map(|(_, calls)| calls).sum());
        counts.by_name = by_name;
        Ok(())
    }
}

/// Instructions, and calls of the allocator, in callgrind's format.
fn read_callgrind(text: &str) -> anyhow::Result<(f64, f64)> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let (mut caller, mut callee) = ("", "");
    let (mut instructions, mut allocations) = (0.0_f64, 0.0_f64);
    for line in text.lines() {
        let Some((field, value)) = line.split_once(['=', ':']) else { continue };
        match field {
            "fn" | "cfn" => {
                // A name is written with its number once, and is the number from there on.
                let (number, name) = value.split_once(' ').unwrap_or((value, ""));
                if !name.is_empty() {
                    names.insert(number, name);
                }
                let name = names.get(number).copied().unwrap_or_default();
                *(if field == "fn" { &mut caller } else { &mut callee }) = name;
            }
            "calls" if ALLOCATING.contains(&callee) && !caller.contains("mi_") => {
                let count = value.split(' ').next().context("calls without a count")?;
                allocations += count.parse::<f64>()?;
            }
            "summary" | "totals" => {
                instructions = instructions.max(value.trim().parse::<f64>()?);
            }
            _ => {}
        }
    }
    ensure!(instructions > 0.0, "callgrind has counted nothing");
    Ok((instructions, allocations))
}

/// Processor time of all gateways, in turns: the clock of a machine that is shared changes from second
/// to second, and all must meet the same one.
async fn take_turns(
    subjects: &[Subject],
    work: &Work,
    slices: usize,
    all: &mut [Counts],
) -> anyhow::Result<()> {
    let mut running = Vec::new();
    for subject in subjects {
        let process = subject.start(&[])?;
        let aim = subject.aim(&process, work)?;
        load::closed(&aim, work.connections, SLICE / 2).await?;
        running.push((process, aim, Vec::new()));
    }
    for _ in 0..slices {
        for (process, aim, figures) in &mut running {
            let before = process.cpu()?;
            let done = load::closed(aim, work.connections, SLICE).await?;
            tokio::time::sleep(AFTERMATH).await;
            let took = process.cpu()?.saturating_sub(before);
            figures.push(took.as_secs_f64() * 1e6 / done.requests as f64);
        }
    }
    for ((process, _, figures), counts) in running.into_iter().zip(all) {
        counts.cpu_us = median::median(figures);
        process.stop()?;
    }
    Ok(())
}

/// How a figure is printed.
struct Figure(Option<f64>, usize);

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(figure) => write!(f, "{figure:>14.0$}", self.1),
            None => write!(f, "{:>14}", "–"),
        }
    }
}

fn print(work: &Work, subjects: &[Subject], all: &[Counts]) {
    let Work { name, connections, requests, .. } = work;
    println!("\n{name}, {connections} connections, {requests} requests; each takes");
    let row = |name: &str, digits: usize, figure: &dyn Fn(&Counts) -> Option<f64>| {
        let figures = all.iter().map(|it| Figure(figure(it), digits).to_string());
        println!("{name:<14}{}", figures.collect::<String>());
    };
    row("instructions", 0, &|it| it.instructions);
    row("allocations", 1, &|it| it.allocations);
    row("system calls", 2, &|it| it.calls);
    row("CPU, µs", 1, &|it| it.cpu_us);
    for (counts, subject) in all.iter().zip(subjects) {
        let often = counts.by_name.iter().filter(|(_, calls)| *calls >= 0.01);
        let often: Vec<String> = often.map(|(name, calls)| format!("{name} {calls:.2}")).collect();
        println!("{}: {}", subject.program.display(), often.join(", "));
    }
}
