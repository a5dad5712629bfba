//! The cost of translation: the processor time of a call whose upstream speaks another dialect, beside that
//! of the same customer's call to an upstream of their own.
//!
//! `cargo bench --bench translate` starts a simulated upstream and one gateway with everything on, and puts
//! every load on all 20 cells in turns, slice by slice: the clock of a machine that is shared changes from
//! second to second. Ratios are taken within a round, and their medians are held against the bars. At the end it
//! compares the memory of short and long streams. `-- --quick` takes three minutes, `-- --gateway FILE` measures
//! another build, and `-- --only agent` one load.
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

#[path = "rig/mod.rs"]
mod rig;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;

use rig::dialect::{Dialect, Shape};
use rig::load::{self, Aim};
use rig::median::median;
use rig::process::Process;

/// The allocator of the `tollgate` binary: the floor of other benchmarks has it too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures what translation costs.
#[derive(Debug, Parser)]
struct Options {
    /// Shorter loads, two rounds at most.
    #[arg(long)]
    quick: bool,
    /// Rounds whose median is taken.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Measure these loads only.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Load>,
    /// A build of tollgate to measure instead of this one.
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,
    /// The flag that `cargo bench` passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Streams at one time, and the pieces of content in each.
const STREAMS: usize = 300;
const STREAM_CHUNKS: usize = 100;
/// Streams whose memory is compared. Their pieces have 20 words, so that whoever kept them would be seen.
const KEPT_STREAMS: usize = 100;
const SHORT: &str = "/sim:blind=off;words=20;interval-ms=10;chunks=40";
const LONG: &str = "/sim:blind=off;words=20;interval-ms=10;chunks=400";
/// What a long stream may hold more than a short one, in KiB: its text alone is 50 KB longer.
const GROWTH_KIB_MAX: f64 = 8.0;
/// Time between a load and the reading of the processor time, for its accounting.
const AFTERMATH: Duration = Duration::from_millis(250);

/// A load on every cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Load {
    Small,
    Conversation,
    Agent,
    Events,
    Memory,
}

impl Load {
    /// The loads whose processor time is measured.
    const TIMED: [Self; 4] = [Self::Small, Self::Conversation, Self::Agent, Self::Events];

    fn name(self) -> &'static str {
        match self {
            Self::Small => "1 KiB",
            Self::Conversation => "16 KiB",
            Self::Agent => "agent",
            Self::Events => "event",
            Self::Memory => "memory",
        }
    }

    fn shape(self) -> Shape {
        match self {
            Self::Small | Self::Events | Self::Memory => Shape::Small,
            Self::Conversation => Shape::Conversation,
            Self::Agent => Shape::Agent,
        }
    }

    fn connections(self) -> usize {
        if self == Self::Agent { 16 } else { 32 }
    }

    /// The most that a translated call may take, of what a native one takes.
    fn bar(self) -> f64 {
        match self {
            Self::Small => 1.25,
            Self::Conversation => 1.15,
            Self::Agent => 1.3,
            Self::Events | Self::Memory => 1.5,
        }
    }
}

/// The upstreams of a dialect, by how they answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    Whole,
    Streamed,
    Short,
    Long,
}

impl Answers {
    const ALL: [Self; 4] = [Self::Whole, Self::Streamed, Self::Short, Self::Long];

    fn settings(self) -> String {
        match self {
            Self::Whole => String::new(),
            Self::Streamed => {
                format!("/sim:blind=off;chunks={STREAM_CHUNKS};interval-ms=20")
            }
            Self::Short => SHORT.to_owned(),
            Self::Long => LONG.to_owned(),
        }
    }
}

/// A customer's dialect over an upstream's.
#[derive(Clone, Copy)]
struct Cell {
    customers: Dialect,
    upstreams: Dialect,
}

impl Cell {
    /// Every customers' dialect over every upstreams'.
    fn all() -> impl Iterator<Item = Self> {
        Dialect::CUSTOMERS
            .into_iter()
            .flat_map(|customers| Dialect::UPSTREAMS.map(|upstreams| Self { customers, upstreams }))
    }

    fn is_native(self) -> bool {
        self.customers == self.upstreams
    }

    fn name(self) -> String {
        match self.is_native() {
            true => self.customers.name().to_owned(),
            false => format!("{} over {}", self.customers.name(), self.upstreams.name()),
        }
    }

    /// The request of a load to the gateway.
    fn aim(self, gateway: &Gateway, load: Load, answers: Answers) -> Aim {
        let model = model(self.upstreams, answers);
        let stream = answers != Answers::Whole;
        let path = self.customers.path(model, stream);
        let body = self.customers.body(load.shape(), model, stream);
        let request = rig::http::post(&path, &gateway.key, "application/json", &body);
        Aim { address: gateway.address, requests: vec![request].into() }
    }
}

/// The name of a dialect's model. Names live as long as the process, as those of agents' requests must.
fn model(upstreams: Dialect, answers: Answers) -> &'static str {
    const NAMES: [[&str; 4]; 5] = [
        ["chat", "chat-streamed", "chat-short", "chat-long"],
        ["messages", "messages-streamed", "messages-short", "messages-long"],
        ["responses", "responses-streamed", "responses-short", "responses-long"],
        ["gemini", "gemini-streamed", "gemini-short", "gemini-long"],
        ["bedrock", "bedrock-streamed", "bedrock-short", "bedrock-long"],
    ];
    let row = Dialect::UPSTREAMS.into_iter().position(|it| it == upstreams).unwrap_or_default();
    let column = Answers::ALL.into_iter().position(|it| it == answers).unwrap_or_default();
    NAMES.get(row).and_then(|names| names.get(column)).copied().unwrap_or_default()
}

/// The gateway that runs, and a key to it.
struct Gateway {
    process: Process,
    address: SocketAddr,
    key: String,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    // One thread for the load: it shares the machine with what it measures.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(bench(&options)))
}

async fn bench(options: &Options) -> anyhow::Result<()> {
    println!("{}", rig::machine::Machine::here("translate"));
    let slice = Duration::from_millis(if options.quick { 250 } else { 700 });
    let rounds = if options.quick { options.rounds.min(2) } else { options.rounds };
    println!(
        "CPU of the gateway in µs and its median ratio to the customers' native call over {rounds} rounds, all \
         cells in turns; closed loops of 2 × {slice:?}, {STREAMS} streams of {STREAM_CHUNKS} events\n"
    );
    // The upstream is of this build whatever is measured.
    let own = env!("CARGO_BIN_EXE_tollgate");
    let program = options.gateway.clone().unwrap_or_else(|| own.into());
    let mut command = Command::new(own);
    let sim = Process::start(command.args(["sim", "--listen", "127.0.0.1:0", "blind=on"]))?;
    let directory = tempfile::tempdir()?;
    let gateway = start(&program, directory.path(), sim.ready_field("address")?).await?;
    let has = |load: &Load| options.only.is_empty() || options.only.contains(load);
    let mut table = Table::default();
    for load in Load::TIMED.into_iter().filter(has) {
        let mut figures = vec![Vec::new(); Cell::all().count()];
        for round in 1..=rounds {
            eprintln!("{}: round {round} of {rounds}", load.name());
            measure(&gateway, load, slice, &mut figures).await?;
        }
        table.add(load, &figures);
    }
    print!("{table}");
    if has(&Load::Memory) {
        compare_memory(&gateway).await?;
    }
    gateway.process.stop()
}

/// One figure for each cell.
async fn measure(
    gateway: &Gateway,
    load: Load,
    slice: Duration,
    figures: &mut [Vec<f64>],
) -> anyhow::Result<()> {
    let mut sums = vec![(0.0, 0.0); figures.len()];
    let slices = if load == Load::Events { 1 } else { 2 };
    let answers = if load == Load::Events { Answers::Streamed } else { Answers::Whole };
    for _ in 0..slices {
        for (cell, sum) in Cell::all().zip(&mut sums) {
            let aim = cell.aim(gateway, load, answers);
            load::once(&aim).await.with_context(|| format!("{} {}", cell.name(), load.name()))?;
            let before = gateway.process.cpu()?;
            let steps = match load {
                Load::Events => {
                    load::streams(&aim, STREAMS, cell.customers.stream_end()).await?;
                    (STREAMS * STREAM_CHUNKS) as f64
                }
                _ => load::closed(&aim, load.connections(), slice).await?.requests as f64,
            };
            tokio::time::sleep(AFTERMATH).await;
            sum.0 += (gateway.process.cpu()? - before).as_secs_f64() * 1e6;
            sum.1 += steps;
        }
    }
    for (all, (micros, steps)) in figures.iter_mut().zip(sums) {
        all.push(micros / steps);
    }
    Ok(())
}

/// One line for each cell, with two columns for each load.
#[derive(Default)]
struct Table {
    head: String,
    lines: Vec<String>,
    bars: String,
}

impl Table {
    fn add(&mut self, load: Load, figures: &[Vec<f64>]) {
        self.head += &format!("{:>10} µs   ratio       ", load.name());
        self.bars += &format!("{:>20} {:<12}", "≤", load.bar());
        self.lines.resize(figures.len(), String::new());
        let native = |customers| {
            let mut cells = Cell::all().zip(figures);
            cells.find(|(cell, _)| cell.is_native() && cell.customers == customers)
        };
        for ((cell, all), line) in Cell::all().zip(figures).zip(&mut self.lines) {
            let Some((_, own)) = native(cell.customers) else { continue };
            let ratios = all.iter().zip(own).map(|(it, own)| it / own).collect();
            let ratio = median(ratios).unwrap_or(f64::NAN);
            let verdict = if ratio <= load.bar() { "" } else { "MISSED" };
            let micros = median(all.clone()).unwrap_or(f64::NAN);
            *line += &format!("{micros:>13.1} {ratio:>7.2} {verdict:<11}");
        }
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:<24}{}", "", self.head.trim_end())?;
        for (cell, line) in Cell::all().zip(&self.lines) {
            writeln!(f, "{:<24}{}", cell.name(), line.trim_end())?;
        }
        writeln!(f, "{:<24}{}", "bar", self.bars.trim_end())
    }
}

/// What each long stream holds more than each short one, at its peak.
async fn compare_memory(gateway: &Gateway) -> anyhow::Result<()> {
    println!(
        "\nKiB that a stream of 400 pieces holds more than one of 40, {KEPT_STREAMS} at one time, ≤ {GROWTH_KIB_MAX}"
    );
    for cell in Cell::all() {
        let end = cell.customers.stream_end();
        let mut peaks = [0.0; 2];
        let short = cell.aim(gateway, Load::Memory, Answers::Short);
        // What the first streams leave behind is there for both.
        load::streams(&short, KEPT_STREAMS, end).await?;
        for (answers, peak) in [Answers::Short, Answers::Long].into_iter().zip(&mut peaks) {
            let aim = cell.aim(gateway, Load::Memory, answers);
            gateway.process.forget_peak()?;
            load::streams(&aim, KEPT_STREAMS, end).await.with_context(|| cell.name())?;
            *peak = gateway.process.peak_rss_mb()?;
        }
        let [short, long] = peaks;
        let growth = (long - short) * 1e6 / 1024.0 / KEPT_STREAMS as f64;
        let verdict = if growth <= GROWTH_KIB_MAX { "" } else { " MISSED" };
        println!("{:<24}{growth:>13.1}{verdict}", cell.name());
    }
    Ok(())
}

/// Starts the gateway with models of each dialect.
async fn start(program: &Path, directory: &Path, upstream: &str) -> anyhow::Result<Gateway> {
    let (mut upstreams, mut models) = (String::new(), "models:\n".to_owned());
    for dialect in Dialect::UPSTREAMS {
        for answers in Answers::ALL {
            let name = model(dialect, answers);
            upstreams += &rig::gateway::upstream_of(dialect, name, upstream, &answers.settings());
            models += &rig::gateway::model_of(dialect, name);
        }
    }
    let more = format!(
        "limits: {{ per_account: {{ requests_in_flight_percent: 100, body_memory_percent: 100 }} }}
upstreams:\n{upstreams}"
    );
    rig::gateway::write_files(directory, "", &more, &models)?;
    let mut command = rig::gateway::command_of(program, directory, &["serve", "--ready-json"]);
    let process = Process::start(command.stderr(Stdio::null()))?;
    let keys = rig::account::keys(process.ready_field("admin_url")?, 1, 1).await?;
    let key = keys.into_iter().next().context("no key")?;
    let address = process.ready_field("base_url")?.trim_start_matches("http://").parse()?;
    Ok(Gateway { process, address, key })
}
