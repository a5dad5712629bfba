//! The cost of tasks: submits with the durable path on, and ten thousand open tasks that are polled at their
//! due times.
//!
//! `cargo bench --bench tasks` starts a simulated upstream and tollgate, submits, and watches the
//! process. `-- --quick` takes a tenth of the tasks.

#[path = "rig/mod.rs"]
mod rig;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tollgate::sim::{Sim, SimOptions};

use rig::account::ADMIN_TOKEN;
use rig::gateway;
use rig::process::Process;

const TASKS: usize = 10_000;
/// Connections that submit.
const CLIENTS: usize = 16;
/// Time for which the open tasks are watched: two rounds of polls of all of them.
const WATCHED: Duration = Duration::from_secs(60);

fn main() -> anyhow::Result<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (count, watched) = if quick { (TASKS / 10, WATCHED / 6) } else { (TASKS, WATCHED) };
    let sim = Sim::start(SimOptions::default())?;
    let directory = tempfile::tempdir()?;
    let (gateway, address, admin) = start(&sim, directory.path())?;
    let key = key(admin)?;
    submit(address, &key, 64)?;
    std::thread::sleep(Duration::from_secs(1));
    let (rss_before, cpu_before) = (gateway.rss_mb()?, gateway.cpu()?);
    let began = Instant::now();
    submit(address, &key, count)?;
    let took = began.elapsed();
    let cpu_submits = (gateway.cpu()? - cpu_before).as_secs_f64();
    // Until every task was polled once, and what submits left behind is written.
    std::thread::sleep(Duration::from_secs(15));
    let rss_after = gateway.rss_mb()?;
    let queries = |sim: &Sim| sim.tasks().iter().map(|task| task.queries).sum::<u64>();
    let (cpu_before, queries_before) = (gateway.cpu()?, queries(&sim));
    std::thread::sleep(watched);
    let share = (gateway.cpu()? - cpu_before).as_secs_f64() / watched.as_secs_f64();
    let polls = queries(&sim) - queries_before;
    println!("{}\n", rig::machine::Machine::here("tasks"));
    println!("submits, {CLIENTS} connections:      {:.0}/s", count as f64 / took.as_secs_f64());
    println!("CPU per submit:                 {:.3} ms", cpu_submits * 1e3 / count as f64);
    let kib = (rss_after - rss_before) * 1e6 / 1024.0 / count as f64;
    println!("RSS growth per open task:       {kib:.2} KiB (bar: at most 4)");
    println!("open tasks:                     {}", count + 64);
    println!("polls a second:                 {:.0}", polls as f64 / watched.as_secs_f64());
    println!("CPU of one core, asking:        {:.2} % (bar: below 5)", share * 100.0);
    Ok(())
}

fn start(
    sim: &Sim,
    directory: &std::path::Path,
) -> anyhow::Result<(Process, SocketAddr, SocketAddr)> {
    let sim = sim.addr();
    let upstream = format!(
        "upstreams:
  xai: {{ protocol: xai, base_url: 'http://{sim}/sim:task-running-ms=3600000' }}
"
    );
    let models = "models:
  gif-video:
    operations: [video]
    targets: [{ upstream: xai }]
    prices: { per_second: 0.07 }
    limits: { seconds_min: 1, seconds_max: 15 }
";
    gateway::write_files(directory, "", &upstream, models)?;
    let gateway = gateway::start_quiet(directory)?;
    let address = |field: &str| -> anyhow::Result<SocketAddr> {
        Ok(gateway.ready_field(field)?.trim_start_matches("http://").parse()?)
    };
    let (base, admin) = (address("base_url")?, address("admin_url")?);
    Ok((gateway, base, admin))
}

/// A key of an account with enough credit.
fn key(admin: SocketAddr) -> anyhow::Result<String> {
    let mut connection = TcpStream::connect(admin)?;
    let mut post = |path: &str, body: Value| -> anyhow::Result<Value> {
        let request = request(&format!("POST /admin/v1{path}"), ADMIN_TOKEN, &body.to_string());
        let answer = exchange(&mut connection, request.as_bytes())?;
        Ok(serde_json::from_str(answer.split_once("\r\n\r\n").context("a body")?.1)?)
    };
    let account = post("/accounts", json!({"name": "bench"}))?;
    let account = account["id"].as_str().context("an id")?.to_owned();
    post(&format!("/accounts/{account}/grants"), json!({"amount": "1000000.00", "id": "bench"}))?;
    let key = post(&format!("/accounts/{account}/keys"), json!({"name": "bench"}))?;
    Ok(key["key"].as_str().context("a key")?.to_owned())
}

fn submit(address: SocketAddr, key: &str, count: usize) -> anyhow::Result<()> {
    let body = json!({"model": "gif-video", "prompt": "a lighthouse", "duration": 5});
    let request = request("POST /v1/videos/generations", key, &body.to_string());
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| -> anyhow::Result<()> {
                    let mut connection = TcpStream::connect(address)?;
                    connection.set_nodelay(true)?;
                    for _ in 0..count / CLIENTS {
                        let answer = exchange(&mut connection, request.as_bytes())?;
                        ensure!(answer.starts_with("HTTP/1.1 202"), "{answer}");
                    }
                    Ok(())
                })
            })
            .collect();
        clients.into_iter().try_for_each(|client| {
            client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?
        })
    })
}

fn request(line: &str, key: &str, body: &str) -> String {
    format!(
        "{line} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends a request and reads the answer, whose length is stated.
fn exchange(connection: &mut TcpStream, request: &[u8]) -> anyhow::Result<String> {
    connection.write_all(request)?;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let read = connection.read(&mut piece)?;
        ensure!(read > 0, "the connection closed");
        answer.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().ok())?
        });
        if length.is_some_and(|length| body.len() >= length) {
            return Ok(text.into_owned());
        }
    }
}
