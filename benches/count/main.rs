//! The cost of a request, counted rather than timed: instructions and allocations with callgrind, system
//! calls with strace, wake-ups by thread, and beside them processor time in turns.
//!
//! `cargo bench --bench count` counts the floor, which is the smallest possible Pingora proxy, the buffered floor,
//! which reads each body to its end and finds its model, and the gateway that was built with them: small chats
//! under full load and at 200 requests a second, and coding agents' requests, native and translated, whole and
//! streamed. `-- --only agent` counts those whose names begin so, `-- --gateway FILE`,
//! given more than once, puts several builds beside each other, `-- --keep DIRECTORY` keeps what
//! callgrind has written, for `callgrind_annotate`. Counts hardly depend on the machine or on what else
//! it does. Valgrind has no instructions for SHA-256, and runs one thread at a time: figures compare with
//! others of this command only.
//!
//! `-- --check` counts the gateway only, and fails where it takes more than the bounds of this build's
//! profile allow.
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod bounds;
#[path = "../rig/mod.rs"]
mod rig;
mod subject;
mod work;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Parser, Subcommand};
use rig::counters::{self, AFTERMATH, Counts, Load, Trial};
use rig::floor::FloorKind;
use rig::process::Process;
use rig::{load, machine, median};
use subject::Subject;
use work::Work;

/// The allocator of the `tollgate` binary: the floor must not differ in it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Duration of a slice of load for processor time.
const SLICE: Duration = Duration::from_secs(2);

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
    /// Slices of processor time for each load; 0 leaves processor time out.
    #[arg(long, default_value_t = 5)]
    slices: usize,
    /// Leave callgrind out, which takes most of the time.
    #[arg(long)]
    no_callgrind: bool,
    /// Leave the floors out.
    #[arg(long)]
    no_floor: bool,
    /// Hold what the gateway takes to the bounds, and count nothing else.
    #[arg(long)]
    check: bool,
    /// The flag that `cargo bench` passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

/// The part of the benchmark that this process plays when the binary starts itself.
#[derive(Debug, Subcommand)]
enum Role {
    /// A floor, in front of this upstream.
    #[command(hide = true)]
    Floor { upstream: SocketAddr, kind: FloorKind },
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if let Some(Role::Floor { upstream, kind }) = options.role {
        return rig::floor::run(upstream, kind).map(|()| ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(bench(&options))
}

async fn bench(options: &Options) -> anyhow::Result<ExitCode> {
    println!("{}", machine::Machine::here("count"));
    let mut programs = options.gateway.clone();
    // The upstream is of this build whatever is counted: others may not answer all of these requests.
    let own = env!("CARGO_BIN_EXE_tollgate");
    if programs.is_empty() {
        programs.push(own.into());
    }
    let mut sim = Command::new(own);
    let sim = Process::start(sim.args(["sim", "--listen", "127.0.0.1:0", "blind=on"]))?;
    let upstream: SocketAddr = sim.ready_field("address")?.parse()?;
    let mut subjects = Vec::new();
    if !options.no_floor && !options.check {
        subjects.push(Subject::Floor(FloorKind::Pass, upstream));
        subjects.push(Subject::Floor(FloorKind::Buffer, upstream));
    }
    for program in programs {
        subjects.push(Subject::gateway(program, upstream).await?);
    }
    let mut is_over = false;
    for work in work::ALL.iter().filter(|work| work.name.starts_with(&options.only)) {
        let bounds = bounds::of(work.name);
        let work = &if options.check { work.shortened() } else { *work };
        if options.check && bounds.is_none() {
            continue;
        }
        let mut all: Vec<Counts> = Vec::new();
        for (number, subject) in subjects.iter().enumerate() {
            all.push(count(options, number, subject, work).await?);
        }
        if options.slices > 0 && !options.check {
            take_turns(&subjects, work, options.slices, &mut all).await?;
        }
        print(work, &subjects, &all);
        if let (true, Some(bounds), Some(counts)) = (options.check, bounds, all.first()) {
            is_over |= !bounds.hold(work.name, counts);
        }
    }
    Ok(if is_over { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// All counts of one work at one subject.
async fn count(
    options: &Options,
    number: usize,
    subject: &Subject,
    work: &Work,
) -> anyhow::Result<Counts> {
    let start = |tool: &[&str]| subject.start(tool);
    let aim = |process: &Process| subject.aim(process, work);
    let trial = Trial { start: &start, aim: &aim, load: work.load, requests: work.requests };
    let mut counts = Counts::default();
    // Paced requests take as many instructions as those that come alone.
    if !options.no_callgrind && matches!(work.load, Load::Closed { .. }) {
        let kept = counters::callgrind(&trial, &mut counts).await?;
        if let Some(directory) = &options.keep {
            let name = format!("{number}.{}", work.name.replace([' ', ',', '/'], "-"));
            std::fs::copy(kept, directory.join(name))?;
        }
    }
    counters::strace(&trial, &mut counts).await?;
    if !options.check {
        counters::wake_ups(&trial, &mut counts).await?;
    }
    Ok(counts)
}

/// Processor time of all, in turns: the clock of a machine that is shared changes from second to second,
/// and all must meet the same one.
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
        put_for(work.load, &aim, SLICE / 2).await?;
        running.push((process, aim, Vec::new()));
    }
    for _ in 0..slices {
        for (process, aim, figures) in &mut running {
            let before = process.cpu()?;
            let requests = put_for(work.load, aim, SLICE).await?;
            tokio::time::sleep(AFTERMATH).await;
            let took = process.cpu()?.saturating_sub(before);
            figures.push(took.as_secs_f64() * 1e6 / requests);
        }
    }
    for ((process, _, figures), counts) in running.into_iter().zip(all) {
        counts.cpu_us = median::median(figures);
        process.stop()?;
    }
    Ok(())
}

/// Puts a load on a subject for a time; gives the number of requests.
async fn put_for(load: Load, aim: &load::Aim, time: Duration) -> anyhow::Result<f64> {
    match load {
        Load::Closed { connections } => {
            Ok(load::closed(aim, connections, time).await?.requests as f64)
        }
        Load::Paced { per_second } => {
            let aim = aim.clone();
            let time = time.max(Duration::from_secs(1));
            let paced = tokio::task::spawn_blocking(move || load::open(&aim, per_second, time));
            Ok(paced.await??.histogram.len() as f64)
        }
    }
}

/// A figure and the decimals that it is printed with.
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
    println!("\n{}, {} requests; each takes", work.name, work.requests);
    let names = subjects.iter().map(|subject| format!("{:>14}", subject.name()));
    println!("{:<14}{}", "", names.collect::<String>());
    let row = |name: &str, digits: usize, figure: &dyn Fn(&Counts) -> Option<f64>| {
        let figures = all.iter().map(|it| Figure(figure(it), digits).to_string());
        println!("{name:<14}{}", figures.collect::<String>());
    };
    row("instructions", 0, &|it| it.instructions);
    row("allocations", 1, &|it| it.allocations);
    row("system calls", 2, &|it| it.calls);
    row("flushes", 2, &Counts::flushes);
    row("wake-ups", 2, &|it| it.wake_ups);
    row("CPU, µs", 1, &|it| it.cpu_us);
    let often = |by_name: &[(String, f64)]| {
        let often = by_name.iter().filter(|(_, count)| *count >= 0.01);
        often.map(|(name, count)| format!("{name} {count:.2}")).collect::<Vec<_>>().join(", ")
    };
    for (counts, subject) in all.iter().zip(subjects) {
        println!("{} calls: {}", subject.name(), often(&counts.by_name));
        if !counts.by_thread.is_empty() {
            println!("{} wakes: {}", subject.name(), often(&counts.by_thread));
        }
    }
}
