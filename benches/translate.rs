//! The cost of translation: the processor time of a call whose upstream speaks another dialect, beside that
//! of the same customer's call to an upstream of their own.
//!
//! `cargo bench --bench translate` starts a simulated upstream and one gateway with everything on, and puts
//! every load on all models in turns, slice by slice: the clock of a machine that is shared changes from
//! second to second. Ratios are taken within a round, and their medians are held against the bars.
//! `-- --quick` takes a minute.

#[path = "rig/mod.rs"]
mod rig;

use std::fmt;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use serde_json::{Value, json};

use rig::load::{self, Aim};
use rig::process::Process;

/// The allocator of the `tollgate` binary: the floor of other benchmarks has it too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures what translation costs.
#[derive(Debug, Parser)]
struct Options {
    /// Shorter loads: a look that takes a minute.
    #[arg(long)]
    quick: bool,
    /// Rounds whose median is taken.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// The flag that `cargo bench` passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Connections of a closed loop.
const CONNECTIONS: usize = 32;
/// Streams at one time, and the pieces of content in each.
const STREAMS: usize = 300;
const STREAM_CHUNKS: usize = 100;
/// Time between a load and the reading of the processor time, for its accounting.
const AFTERMATH: Duration = Duration::from_millis(250);

/// A dialect that customers and upstreams speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Chat,
    Messages,
    Responses,
}

impl Dialect {
    const ALL: [Self; 3] = [Self::Chat, Self::Messages, Self::Responses];

    fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Messages => "messages",
            Self::Responses => "responses",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Messages => "/v1/messages",
            Self::Responses => "/v1/responses",
        }
    }

    /// A conversation of about `bytes` bytes, in turns of a kibibyte.
    fn body(self, model: &str, load: Load) -> Vec<u8> {
        let turn = |place: usize| {
            let role = if place.is_multiple_of(2) { "user" } else { "assistant" };
            json!({"role": role, "content": "Every quarter of an hour, from six to nine. ".repeat(17)})
        };
        let turns: Vec<Value> = (0..load.turns()).map(turn).collect();
        let system = "You are a travel assistant. Answer in two sentences, without a greeting.";
        let mut body = match self {
            Self::Chat => {
                let first = json!({"role": "system", "content": system});
                let turns: Vec<Value> = std::iter::once(first).chain(turns).collect();
                json!({"max_tokens": 256, "messages": turns})
            }
            Self::Messages => json!({"max_tokens": 256, "system": system, "messages": turns}),
            Self::Responses => json!({"max_output_tokens": 256, "instructions": system,
                "input": turns, "store": false}),
        };
        body["model"] = json!(model);
        body["temperature"] = json!(0.2);
        body["stream"] = json!(load == Load::Events);
        body.to_string().into_bytes()
    }

    /// The last bytes of a complete stream.
    fn stream_end(self) -> &'static [u8] {
        match self {
            Self::Chat => b"data: [DONE]\n\n",
            Self::Messages => b"data: {\"type\":\"message_stop\"}\n\n",
            Self::Responses => b"}\n\n",
        }
    }
}

/// Settings of every model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Small,
    Large,
    Events,
}

impl Load {
    const ALL: [Self; 3] = [Self::Small, Self::Large, Self::Events];

    fn turns(self) -> usize {
        match self {
            Self::Small | Self::Events => 1,
            Self::Large => 21,
        }
    }

    /// The most that a translated call may take, of what a native one takes.
    fn bar(self) -> f64 {
        match self {
            Self::Small => 1.25,
            Self::Large => 1.15,
            Self::Events => 1.5,
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Small => "1 KiB",
            Self::Large => "16 KiB",
            Self::Events => "event",
        })
    }
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    // One thread for the load: it shares the machine with what it measures.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(bench(&options)))
}

async fn bench(options: &Options) -> anyhow::Result<()> {
    println!("{}", rig::machine::Machine::here("translate"));
    let slice = Duration::from_millis(if options.quick { 300 } else { 1000 });
    let rounds = if options.quick { options.rounds.min(2) } else { options.rounds };
    println!(
        "medians over {rounds} rounds, all models in turns; closed loops of 2 × {slice:?} on \
         {CONNECTIONS} connections, {STREAMS} streams of {STREAM_CHUNKS} events\n"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let sim = Process::start(command.args(["sim", "--listen", "127.0.0.1:0"]))?;
    let directory = tempfile::tempdir()?;
    let gateway = start(directory.path(), sim.ready_field("address")?)?;
    let key = rig::account::keys(gateway.ready_field("admin_url")?, 1, 1).await?;
    let key = key.into_iter().next().context("no key")?;
    let address = gateway.ready_field("base_url")?.trim_start_matches("http://").parse()?;
    for load in Load::ALL {
        let mut figures = vec![Vec::new(); 9];
        for round in 1..=rounds {
            eprintln!("{load}: round {round} of {rounds}");
            measure(&gateway, address, &key, load, slice, &mut figures).await?;
        }
        print(load, &figures);
    }
    gateway.stop()
}

/// One figure for each pair of dialects, customers' by customers'.
async fn measure(
    gateway: &Process,
    address: SocketAddr,
    key: &str,
    load: Load,
    slice: Duration,
    figures: &mut [Vec<f64>],
) -> anyhow::Result<()> {
    let mut sums = vec![(0.0, 0.0); figures.len()];
    let slices = if load == Load::Events { 1 } else { 2 };
    for _ in 0..slices {
        for (pair, sum) in pairs().zip(&mut sums) {
            let (customers, upstreams) = pair;
            let model = format!("{}-{}", upstreams.name(), load == Load::Events);
            let request = rig::http::post(
                customers.path(),
                key,
                "application/json",
                &customers.body(&model, load),
            );
            let aim = Aim { address, requests: vec![request].into() };
            load::once(&aim).await.with_context(|| format!("{pair:?} {load}"))?;
            let before = gateway.cpu()?;
            let steps = match load {
                Load::Events => {
                    load::streams(&aim, STREAMS, customers.stream_end()).await?;
                    (STREAMS * STREAM_CHUNKS) as f64
                }
                _ => load::closed(&aim, CONNECTIONS, slice).await?.requests as f64,
            };
            tokio::time::sleep(AFTERMATH).await;
            sum.0 += (gateway.cpu()? - before).as_secs_f64() * 1e6;
            sum.1 += steps;
        }
    }
    for (all, (micros, steps)) in figures.iter_mut().zip(sums) {
        all.push(micros / steps);
    }
    Ok(())
}

/// Every customers' dialect over every upstreams'.
fn pairs() -> impl Iterator<Item = (Dialect, Dialect)> {
    Dialect::ALL.into_iter().flat_map(|one| Dialect::ALL.map(|other| (one, other)))
}

/// Processor time in microseconds, native and translated, with the median of the rounds' ratios.
fn print(load: Load, figures: &[Vec<f64>]) {
    let native: Vec<&Vec<f64>> =
        pairs().zip(figures).filter(|((one, other), _)| one == other).map(|(_, all)| all).collect();
    println!(
        "{:<34} {:>8} {:>11} {:>7}  bar",
        format!("CPU per {load}, µs"),
        "native",
        "translated",
        "ratio"
    );
    for (place, (pair, all)) in pairs().zip(figures).enumerate() {
        let (customers, upstreams) = pair;
        let Some(own) = native.get(place / Dialect::ALL.len()) else { continue };
        if customers == upstreams {
            continue;
        }
        let ratios = all.iter().zip(own.iter()).map(|(it, own)| it / own).collect();
        let middle = |all: &[f64]| rig::median::median(all.to_vec()).unwrap_or(f64::NAN);
        let ratio = rig::median::median(ratios).unwrap_or(f64::NAN);
        let verdict = if ratio <= load.bar() { "reached" } else { "MISSED" };
        println!(
            "{:<34} {:>8.1} {:>11.1} {ratio:>7.2}  ≤ {} {verdict}",
            format!("  {} over {}", customers.name(), upstreams.name()),
            middle(own),
            middle(all),
            load.bar(),
        );
    }
    println!();
}

/// Starts the gateway with a model of each dialect, once for documents and once for streams.
fn start(directory: &std::path::Path, upstream: &str) -> anyhow::Result<Process> {
    let mut upstreams = String::new();
    let mut models = "models:\n".to_owned();
    for dialect in Dialect::ALL {
        for stream in [false, true] {
            let name = format!("{}-{stream}", dialect.name());
            let settings = if stream {
                format!("/sim:chunks={STREAM_CHUNKS};interval-ms=20")
            } else {
                String::new()
            };
            let (protocol, version) = match dialect {
                Dialect::Messages => ("anthropic", ""),
                Dialect::Chat | Dialect::Responses => ("openai", "/v1"),
            };
            upstreams += &format!(
                "  u-{name}: {{ protocol: {protocol}, credential: x, base_url: 'http://{upstream}{settings}{version}' }}\n"
            );
            models += &format!(
                "  {name}:
    operations: [{}]
    targets: [{{ upstream: u-{name} }}]
    prices: {{ input_per_1m_tokens: 0.15, cached_input_per_1m_tokens: 0.075, output_per_1m_tokens: 0.60 }}
    limits: {{ context_tokens_max: 128000, output_tokens_max: 16384 }}
",
                dialect.name()
            );
        }
    }
    let more = format!(
        "limits: {{ per_account: {{ requests_in_flight_percent: 100, body_memory_percent: 100 }} }}
upstreams:\n{upstreams}"
    );
    rig::gateway::write_files(directory, "", &more, &models)?;
    let mut command = rig::gateway::command(directory, &["serve", "--ready-json"]);
    Process::start(command.stderr(Stdio::null()))
}
