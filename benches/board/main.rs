//! The cost of tollgate: CPU, throughput, latency, memory, start time and instructions, beside the floor, which is
//! the smallest possible Pingora proxy, the buffered floor, which also reads each body to its end and finds its
//! model, and peers. All have the same allocator and profile where they are built here.
//!
//! `cargo bench --bench board` starts a simulated upstream, the floors, and tollgate with everything on and its
//! ledger durable, each as a process of its own, and drives them in turns with one load generator. Every loop ends
//! by time and by number, and nothing leaves the machine. It takes some twenty minutes; `-- --quick` five,
//! `-- --only agents` measures one part, `-- --json FILE` keeps every figure, and `-- --gateway FILE` measures
//! another build. The column `direct` is the upstream without a proxy, so what the load generator can do.
//!
//! # Peers
//!
//! `-- --peer NAME=SCRIPT`, given more than once, measures other gateways in the same rounds. The script is started
//! in an empty directory with these variables, and must become the gateway (`exec`), whose processor time and
//! memory are then read from its process:
//!
//! | Variable | Value |
//! |---|---|
//! | `UPSTREAM` | the upstream, `http://127.0.0.1:40001` |
//! | `PORT` | the port of 127.0.0.1 on which `/v1/chat/completions` is answered |
//! | `MODELS` | a file with a line for each model: its name, the protocol of its upstream (`openai`, `responses` or `anthropic`) and its base URL without a version, with tabs between |
//! | `TOOL` | the words of a command below which the gateway is to run, mostly none: `exec $TOOL gateway` |
//!
//! It must answer the models of chats; rows of others (`/v1/messages`, `/v1/responses`, images) are left out where
//! the first request fails. Requests carry a bearer token that no peer has to know. For Busbar (configuration of
//! 1.5, from `docs/configuration.md` of GetBusbar/busbar), without keys and with no durable store:
//!
//! ```sh
//! #!/bin/sh
//! {
//!     printf 'listen: "127.0.0.1:%s"\nadmin_listen: "127.0.0.1:%s"\n' "$PORT" $((PORT + 1))
//!     printf 'auth:\n  chain: []\nproviders:\n'
//!     while read -r model _ _; do printf '  p-%s: { api_key: { env: KEY } }\n' "$model"; done <"$MODELS"
//!     printf 'models:\n'
//!     while read -r model _ _; do printf '  %s: { provider: p-%s, max_concurrent: 8000, max_requests: -1 }\n' "$model" "$model"; done <"$MODELS"
//! } >config.yaml
//! while read -r model protocol url; do
//!     printf 'p-%s: { protocol: %s, base_url: "%s" }\n' "$model" "$protocol" "$url"
//! done <"$MODELS" >providers.yaml
//! export KEY=x BUSBAR_CONFIG=config.yaml BUSBAR_PROVIDERS=providers.yaml BUSBAR_STATE_FILE= RUST_LOG=error
//! exec $TOOL busbar
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod closed;
mod config;
mod figures;
mod instructions;
mod measure;
mod memory;
mod peer;
mod report;
#[path = "../rig/mod.rs"]
mod rig;
mod rows;
mod subjects;
mod work;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use rig::floor::FloorKind;

/// The allocator of the `tollgate` binary: what is compared must not differ in it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures tollgate against the smallest possible Pingora proxies, and other gateways.
#[derive(Debug, Parser)]
struct Options {
    /// Shorter loads, two rounds at most: a look.
    #[arg(long)]
    quick: bool,
    /// Rounds whose median is taken.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Measure these parts only.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<measure::Part>,
    /// Another gateway, and the script that starts it.
    #[arg(long, value_name = "NAME=SCRIPT", value_parser = peer_option)]
    peer: Vec<(String, PathBuf)>,
    /// A build of tollgate to measure instead of this one.
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,
    /// Write every figure of every round here.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
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

fn peer_option(text: &str) -> anyhow::Result<(String, PathBuf)> {
    let (name, script) = text.split_once('=').context("a peer is NAME=SCRIPT")?;
    Ok((name.to_owned(), script.into()))
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if let Some(Role::Floor { upstream, kind }) = options.role {
        return rig::floor::run(upstream, kind).map(|()| ExitCode::SUCCESS);
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
    let plan = measure::Plan::new(options.quick, options.rounds, options.only.clone());
    let machine = rig::machine::Machine::here("board");
    println!("{machine}");
    println!("{plan}\n");
    let bench = subjects::Bench::prepare(options.gateway.clone(), &options.peer).await?;
    let columns = bench.columns();
    let mut figures = figures::Figures::default();
    for round in 1..=plan.rounds {
        eprintln!("round {round} of {}", plan.rounds);
        measure::round(&plan, &bench, round, &mut figures).await?;
    }
    if plan.has(measure::Part::Instructions) {
        instructions::count(&bench, &mut figures).await?;
    }
    drop(bench);
    print!("{}", report::table(&figures, &columns));
    if let Some(path) = &options.json {
        let json = report::json(&figures, &columns, &machine, &plan);
        std::fs::write(path, format!("{json:#}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
