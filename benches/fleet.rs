//! The cost of a fleet: the CPU time of a call on three nodes against one gateway, the slowdown where all of
//! them spend one account, and the load on PostgreSQL.
//!
//! `cargo bench --bench fleet` starts a PostgreSQL server, one simulated upstream, three single gateways
//! and three nodes, and puts its loads on them in slices, in turns: the clock of a machine that is shared
//! changes from second to second, and all must meet the same one.
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};

#[expect(dead_code, unused_imports, reason = "tests use more of it")]
#[path = "../tests/harness/postgres.rs"]
mod postgres;
mod rig;

use postgres::Postgres;
use rig::load::{self, Aim};
use rig::process::Process;
use rig::{account, body, gateway, http, machine, median};

/// Connections of each load, over all that it asks.
const CONNECTIONS: usize = 48;
/// Duration of a slice, and the number of slices of each load.
const SLICE: Duration = Duration::from_secs(2);
const SLICES: usize = 9;
const WARM_UP: Duration = Duration::from_secs(2);
/// Settlements that are written later are part of a call's cost.
const AFTERMATH: Duration = Duration::from_millis(700);
/// Gateways of each kind.
const NODES: usize = 3;
/// Accounts where it is not one.
const ACCOUNTS: usize = 30;
/// The bars.
const CPU_MAX: f64 = 1.1;
const HOT_MIN: f64 = 0.9;
const TRANSACTIONS_MAX: f64 = 10.0;

fn main() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(bench())
}

/// Figures of one kind of load, slice by slice.
#[derive(Default)]
struct Figures {
    cpu_us: Vec<f64>,
    per_second: Vec<f64>,
    requests: u64,
    written_bytes: u64,
}

async fn bench() -> anyhow::Result<ExitCode> {
    let machine = machine::Machine::here("fleet");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let upstream = Process::start(command.args(["sim", "--listen", "127.0.0.1:0", "blind=on"]))?;
    let upstream = (upstream.ready_field("address")?.to_owned(), upstream);
    let directory = tempfile::tempdir()?;
    let server = Postgres::start();
    let (database, url) = server.database("bench");
    let single = start_all(&directory.path().join("single"), &upstream.0, None)?;
    let fleet = start_all(&directory.path().join("fleet"), &upstream.0, Some(&url))?;

    let keys = account::keys(single[0].ready_field("admin_url")?, ACCOUNTS, 1).await?;
    let one = vec![aim(&single[0], &keys)?];
    let mut singles = Vec::new();
    for gateway in &single {
        // Each has an account of its own: that is the most that three could do.
        let hot = account::keys(gateway.ready_field("admin_url")?, 1, 1).await?;
        singles.push(aim(gateway, &hot)?);
    }
    let keys = account::keys(fleet[0].ready_field("admin_url")?, ACCOUNTS + 1, 1).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (hot, many) = keys.split_first().context("keys")?;
    let many = fleet.iter().map(|node| aim(node, many)).collect::<anyhow::Result<Vec<_>>>()?;
    let hot = std::slice::from_ref(hot);
    let hot = fleet.iter().map(|node| aim(node, hot)).collect::<anyhow::Result<Vec<_>>>()?;

    let loads: [(&[Aim], &[Process]); 4] =
        [(&one, &single), (&singles, &single), (&many, &fleet), (&hot, &fleet)];
    for (aims, _) in loads {
        slice(aims, WARM_UP).await?;
    }
    let before = DatabaseWork::of(&server, &database)?;
    let mut all: [Figures; 4] = Default::default();
    for _ in 0..SLICES {
        for ((aims, gateways), figures) in loads.iter().zip(&mut all) {
            figures.add(aims, gateways).await?;
        }
    }
    let work = DatabaseWork::of(&server, &database)?.since(&before);
    println!("{machine}");
    let is_reached = report(&all, &work)?;
    for gateway in single.into_iter().chain(fleet) {
        gateway.stop()?;
    }
    let sums = "SELECT sum(granted - available - spent), sum(leased + held + suspense) \
                FROM tollgate.accounts";
    let sums = server.sql(&database, sums);
    ensure!(sums == "0|0", "the treasury does not add up at the end: {sums}");
    Ok(if is_reached { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Figures {
    /// Puts one slice of a load on its gateways.
    async fn add(&mut self, aims: &[Aim], gateways: &[Process]) -> anyhow::Result<()> {
        let cpu = |gateways: &[Process]| {
            gateways.iter().map(Process::cpu).sum::<anyhow::Result<Duration>>()
        };
        let written = |gateways: &[Process]| {
            gateways.iter().map(Process::written_bytes).sum::<anyhow::Result<u64>>()
        };
        let (cpu_before, written_before) = (cpu(gateways)?, written(gateways)?);
        let (requests, per_second) = slice(aims, SLICE).await?;
        tokio::time::sleep(AFTERMATH).await;
        let spent = cpu(gateways)?.saturating_sub(cpu_before);
        self.cpu_us.push(spent.as_secs_f64() * 1e6 / requests as f64);
        self.per_second.push(per_second);
        self.requests += requests;
        self.written_bytes += written(gateways)? - written_before;
        Ok(())
    }
}

/// Asks all at once; gives requests, and requests a second.
async fn slice(aims: &[Aim], duration: Duration) -> anyhow::Result<(u64, f64)> {
    let each = CONNECTIONS / aims.len();
    let loads = aims.iter().map(|aim| load::closed(aim, each, duration));
    let done = futures_util::future::try_join_all(loads).await?;
    let requests = done.iter().map(|load| load.requests).sum();
    Ok((requests, done.iter().map(load::Throughput::per_second).sum()))
}

/// PostgreSQL's own counters of its work.
struct DatabaseWork {
    transactions: f64,
    log_bytes: f64,
}

impl DatabaseWork {
    fn of(server: &Postgres, database: &str) -> anyhow::Result<Self> {
        // Its sums are a second late.
        std::thread::sleep(Duration::from_millis(1500));
        let figure =
            |sql: &str| -> anyhow::Result<f64> { Ok(server.sql("postgres", sql).parse()?) };
        let transactions = figure(&format!(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{database}'"
        ))?;
        let log_bytes = figure("SELECT pg_current_wal_lsn() - '0/0'")?;
        Ok(Self { transactions, log_bytes })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            transactions: self.transactions - before.transactions,
            log_bytes: self.log_bytes - before.log_bytes,
        }
    }
}

fn report(all: &[Figures; 4], work: &DatabaseWork) -> anyhow::Result<bool> {
    println!("medians of {SLICES} slices of {} s, {CONNECTIONS} connections", SLICE.as_secs());
    let names = [
        "one gateway, 30 accounts",
        "three gateways, an account each",
        "three nodes, 30 accounts",
        "three nodes, one account",
    ];
    let mut cpu = Vec::new();
    for (name, figures) in names.iter().zip(all) {
        let median = |figures: &[f64]| median::median(figures.to_vec()).context("no slices");
        let (cpu_us, per_second) = (median(&figures.cpu_us)?, median(&figures.per_second)?);
        let written = figures.written_bytes as f64 / figures.requests as f64;
        println!(
            "{name:<32} {cpu_us:>7.1} µs CPU {per_second:>8.0}/s {written:>6.0} bytes written"
        );
        cpu.push(cpu_us);
    }
    let pairs = |a: &[f64], b: &[f64]| {
        let ratios = a.iter().zip(b).map(|(a, b)| a / b).collect();
        median::median(ratios).context("no slices")
    };
    let [one, singles, many, hot] = all;
    let over_one = pairs(&many.cpu_us, &one.cpu_us)?;
    let over_three = pairs(&hot.cpu_us, &singles.cpu_us)?;
    let throughput = pairs(&hot.per_second, &singles.per_second)?;
    let calls = (many.requests + hot.requests) as f64;
    let transactions = work.transactions / calls * 1000.0;
    println!("CPU of three nodes to one gateway       {over_one:>6.2} (at most {CPU_MAX})");
    println!("CPU of three nodes to three gateways    {over_three:>6.2}");
    println!("calls of a hot account to three alone   {throughput:>6.2} (at least {HOT_MIN})");
    println!(
        "transactions per 1,000 calls            {transactions:>6.2} (at most {TRANSACTIONS_MAX})"
    );
    println!("bytes of PostgreSQL's log per call      {:>6.0}", work.log_bytes / calls);
    Ok(over_one <= CPU_MAX && throughput >= HOT_MIN && transactions <= TRANSACTIONS_MAX)
}

fn aim(gateway: &Process, keys: &[String]) -> anyhow::Result<Aim> {
    let address: SocketAddr =
        gateway.ready_field("base_url")?.trim_start_matches("http://").parse()?;
    let chat = body::chat(gateway::MODEL, false, 0);
    let request = |key: &String| http::post("/v1/chat/completions", key, "application/json", &chat);
    let requests: Vec<_> = keys.iter().map(request).collect();
    Ok(Aim { address, requests: Arc::from(requests) })
}

fn start_all(dir: &Path, upstream: &str, database: Option<&str>) -> anyhow::Result<Vec<Process>> {
    let shared = database.map_or_else(String::new, |url| format!(", postgres: {{ url: '{url}' }}"));
    let mut started = Vec::new();
    for number in 0..NODES {
        let dir = dir.join(number.to_string());
        std::fs::create_dir_all(&dir)?;
        let upstream = gateway::openai_upstream(upstream);
        gateway::write_files(&dir, &shared, &upstream, &gateway::chat_model())?;
        if number == 0 && database.is_some() {
            let migrated = gateway::command(&dir, &["migrate", "up"]).output()?;
            let errors = String::from_utf8_lossy(&migrated.stderr).into_owned();
            ensure!(migrated.status.success(), "tollgate migrate up: {errors}");
        }
        started.push(gateway::start(&dir)?);
    }
    Ok(started)
}
