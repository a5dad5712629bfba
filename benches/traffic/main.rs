//! The cost of production traffic: TLS, thousands of open streams, reloads under load, many models and keys,
//! and limits.
//!
//! `cargo bench --bench traffic` starts a simulated upstream and gateways of which each differs from
//! the first in one thing, as processes of their own, and drives them in turns with one load
//! generator. `-- --quick` takes about a minute, `-- --json FILE` keeps every figure. It needs
//! 11,000 open files: `ulimit -n` says how many there may be.

mod config;
mod gateway;
mod h2;
mod reload;
mod report;
mod requests;
#[path = "../rig/mod.rs"]
mod rig;
mod streams;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use gateway::Upstream;
use report::Figures;

/// The allocator of the `tollgate` binary, as in the other benchmarks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures what production traffic costs.
#[derive(Debug, Parser)]
struct Options {
    /// Shorter loads and one round: a look that takes about a minute.
    #[arg(long)]
    quick: bool,
    /// Rounds whose median is taken.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Write every figure of every round here.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure one thing alone.
    #[arg(long, value_enum, value_name = "PART")]
    only: Option<Part>,
    /// The flag that `cargo bench` passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

/// A part of what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The memory of open streams.
    Streams,
    /// The cost of requests: TLS, many models and keys, limits.
    Requests,
    /// Latencies while the configuration is reloaded.
    Reloads,
}

/// The part of the benchmark that this process plays when the binary starts itself.
#[derive(Debug, Subcommand)]
enum Role {
    /// The smallest possible Pingora proxy, in front of this upstream.
    #[command(hide = true)]
    Floor { upstream: SocketAddr },
}

/// Extent of the measurements.
pub(crate) struct Plan {
    rounds: u32,
    /// Duration of each closed loop on each gateway in a round.
    pub(crate) closed: Duration,
    /// Duration of one turn of an open loop, with reloads or without.
    pub(crate) open: Duration,
    /// Turns of each of the two in a round.
    pub(crate) open_turns: u32,
}

impl Plan {
    fn new(options: &Options) -> Self {
        let second = Duration::from_secs(1);
        if options.quick {
            return Self { rounds: 1, closed: second, open: 5 * second, open_turns: 1 };
        }
        Self { rounds: options.rounds, closed: 3 * second, open: 5 * second, open_turns: 3 }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, closed, open, open_turns } = self;
        write!(
            f,
            "medians over {rounds} rounds, the gateways in turns; closed loops of {closed:?} with {} \
             requests at a time, {} streams, open loops of {open_turns} × {open:?} at {}/s",
            requests::CONNECTIONS,
            streams::STREAMS,
            reload::RATE
        )
    }
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if let Some(Role::Floor { upstream }) = options.role {
        return rig::floor::run(upstream, rig::floor::FloorKind::Pass);
    }
    streams::check_open_files()?;
    // One thread for the load: it shares the machine with what it measures.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // Whichever ends first, the started processes end with the future that holds them.
        tokio::select! {
            result = Box::pin(bench(&options)) => result,
            _ = interrupt.recv() => anyhow::bail!("interrupted"),
            _ = terminate.recv() => anyhow::bail!("terminated"),
        }
    });
    runtime.shutdown_background();
    result
}

async fn bench(options: &Options) -> anyhow::Result<()> {
    let plan = Plan::new(options);
    let machine = rig::machine::Machine::here("traffic");
    println!("{machine}");
    println!("{plan}\n");
    let upstream = Upstream::start()?;
    let mut figures = Figures::default();
    for round in 1..=plan.rounds {
        for part in Part::value_variants() {
            if options.only.is_some_and(|only| only != *part) {
                continue;
            }
            eprintln!("round {round} of {}: {part:?}", plan.rounds);
            match part {
                Part::Streams => streams::measure(&upstream, &mut figures).await?,
                Part::Requests => requests::measure(&plan, &upstream, round, &mut figures).await?,
                Part::Reloads => reload::measure(&plan, &upstream, &mut figures).await?,
            }
        }
    }
    println!("{}", report::table(&figures));
    if let Some(path) = &options.json {
        let json = report::json(&figures, &machine, &plan);
        std::fs::write(path, format!("{json:#}\n"))?;
    }
    Ok(())
}
