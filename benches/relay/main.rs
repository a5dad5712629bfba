//! The cost of tollgate: CPU, latency, memory and start time, as ratios to the floor, which is the smallest
//! possible Pingora proxy, built with the same allocator and profile.
//!
//! `cargo bench --bench relay` starts a simulated upstream, the floor, and tollgate with everything
//! on and its ledger durable, each as a process of its own, and drives them in turns with one load
//! generator. `-- --quick` takes a minute, `-- --json FILE` keeps every figure.

mod config;
mod measure;
mod report;
#[path = "../rig/mod.rs"]
mod rig;
mod subjects;
mod work;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// The allocator of the `tollgate` binary: what is compared must not differ in it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures tollgate against the smallest possible Pingora proxy.
#[derive(Debug, Parser)]
struct Options {
    /// Shorter loads: a look that takes a minute.
    #[arg(long)]
    quick: bool,
    /// Rounds whose median is taken.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Write every figure of every round here.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Leave tollgate out: only the floor beside the upstream itself.
    #[arg(long)]
    floor_only: bool,
    /// The flag that `cargo bench` passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

/// The part of the benchmark that this process plays when the binary starts itself.
#[derive(Debug, Subcommand)]
enum Role {
    /// The floor, in front of this upstream.
    #[command(hide = true)]
    Floor { upstream: SocketAddr },
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if let Some(Role::Floor { upstream }) = options.role {
        return rig::floor::run(upstream).map(|()| ExitCode::SUCCESS);
    }
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

async fn bench(options: &Options) -> anyhow::Result<ExitCode> {
    let plan = measure::Plan::new(options.quick, options.rounds);
    let machine = rig::machine::Machine::here("relay");
    println!("{machine}");
    println!("{plan}\n");
    let mut bench = subjects::Bench::prepare(options.floor_only).await?;
    let mut figures = measure::Figures::default();
    for round in 1..=plan.rounds {
        eprintln!("round {round} of {}", plan.rounds);
        measure::round(&plan, &mut bench, round, &mut figures).await?;
    }
    drop(bench);
    println!("{}", report::table(&figures));
    if let Some(path) = &options.json {
        let json = report::json(&figures, &machine, &plan);
        std::fs::write(path, format!("{json:#}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
