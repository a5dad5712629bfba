//! What tasks cost: submits with the durable path on, and ten thousand open tasks that are asked about
//! at their due times.
//!
//! `cargo bench --bench tasks` starts a simulated upstream and tollgate, submits, and watches the
//! process. `-- --quick` takes a tenth of the tasks.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tollgate::sim::{Sim, SimOptions};

const TOKEN: &str = "admin-token-of-a-benchmark";
const TASKS: usize = 10_000;
/// Connections that submit.
const CLIENTS: usize = 16;
/// How long the open tasks are watched: two rounds of questions to all of them.
const WATCHED: Duration = Duration::from_secs(60);
/// Ticks of `/proc` in a second.
const TICKS_PER_SECOND: f64 = 100.0;

struct Gateway(Child);

impl Drop for Gateway {
    fn drop(&mut self) {
        // One that has ended by itself is as good.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn main() -> anyhow::Result<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (count, watched) = if quick { (TASKS / 10, WATCHED / 6) } else { (TASKS, WATCHED) };
    let sim = Sim::start(SimOptions::default())?;
    let directory = tempfile::tempdir()?;
    let (gateway, address, admin) = start(&sim, directory.path())?;
    let key = key(admin)?;
    let pid = gateway.0.id();
    submit(address, &key, 64)?;
    std::thread::sleep(Duration::from_secs(1));
    let (rss_before, cpu_before) = (rss_kib(pid)?, cpu(pid)?);
    let began = Instant::now();
    submit(address, &key, count)?;
    let took = began.elapsed();
    let cpu_submits = cpu(pid)? - cpu_before;
    // Until everyone has been asked about once, and what submits left behind is written.
    std::thread::sleep(Duration::from_secs(15));
    let rss_after = rss_kib(pid)?;
    let queries = |sim: &Sim| sim.tasks().iter().map(|task| task.queries).sum::<u64>();
    let (cpu_before, queries_before) = (cpu(pid)?, queries(&sim));
    std::thread::sleep(watched);
    let share = (cpu(pid)? - cpu_before) / watched.as_secs_f64();
    let asked = queries(&sim) - queries_before;
    println!("submits, {CLIENTS} connections:      {:.0}/s", count as f64 / took.as_secs_f64());
    println!("CPU per submit:                 {:.3} ms", cpu_submits * 1e3 / count as f64);
    let kib = rss_after.saturating_sub(rss_before) as f64 / count as f64;
    println!("RSS growth per open task:       {kib:.2} KiB (bar: at most 4)");
    println!("open tasks:                     {}", count + 64);
    println!("questions a second:             {:.0}", asked as f64 / watched.as_secs_f64());
    println!("CPU of one core, asking:        {:.2} % (bar: below 5)", share * 100.0);
    Ok(())
}

fn start(
    sim: &Sim,
    directory: &std::path::Path,
) -> anyhow::Result<(Gateway, SocketAddr, SocketAddr)> {
    let (routes, models) = (directory.join("routes.yaml"), directory.join("models.yaml"));
    std::fs::write(
        &routes,
        format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]
admin: {{ address: 127.0.0.1:0, token: {TOKEN} }}
store: {{ data_dir: {} }}
upstreams:
  xai: {{ protocol: xai, base_url: 'http://{}/sim:task-running-ms=3600000' }}
",
            directory.join("data").display(),
            sim.addr()
        ),
    )?;
    std::fs::write(
        &models,
        "models:
  gif-video:
    operations: [video]
    targets: [{ upstream: xai }]
    prices: { per_second: 0.07 }
    limits: { seconds_min: 1, seconds_max: 15 }
",
    )?;
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .arg("serve")
        .arg("--routes")
        .arg(routes)
        .arg("--models")
        .arg(models)
        .args(["--ready-json", "--log", "warn"])
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().context("standard output is piped")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let ready: Value = serde_json::from_str(&line)?;
    let address = |field: &str| -> anyhow::Result<SocketAddr> {
        let url = ready[field].as_str().context("no address")?;
        Ok(url.trim_start_matches("http://").parse()?)
    };
    Ok((Gateway(child), address("base_url")?, address("admin_url")?))
}

/// A key of an account with enough credit.
fn key(admin: SocketAddr) -> anyhow::Result<String> {
    let mut connection = TcpStream::connect(admin)?;
    let mut post = |path: &str, body: Value| -> anyhow::Result<Value> {
        let request = request(&format!("POST /admin/v1{path}"), TOKEN, &body.to_string());
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

/// Processor time of a process so far, in seconds.
fn cpu(pid: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit_once(')').context("a name")?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    Ok((ticks(11).context("utime")? + ticks(12).context("stime")?) / TICKS_PER_SECOND)
}

fn rss_kib(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS")?;
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).context("KiB")
}
