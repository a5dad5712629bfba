//! Service of admitted requests while ten times as many arrive.
//!
//! `cargo bench --bench overload` lets a gateway serve 64 requests at one time over an upstream that
//! takes 100 ms. First as many clients call as are served: that is the peak. Then clients offer ten
//! times the peak, and whoever is turned away asks again. The gateway should serve at least 90 % of
//! the peak, and turn the rest away within 50 ms.
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tollgate::sim::{Behaviour, Sim, SimOptions};

#[path = "rig/machine.rs"]
mod machine;

/// Requests that the gateway serves at one time.
const SERVED_MAX: usize = 64;
/// Delay of the upstream.
const UPSTREAM_DELAY: Duration = Duration::from_millis(100);
/// Offered load as a multiple of the peak.
const OVERLOAD: usize = 10;
/// Pause of a rejected client before its next request: that of clients that ignore `Retry-After`.
const RETRY_AFTER: Duration = UPSTREAM_DELAY;
/// Duration of each load, and of the warm-up that is not counted.
const LOAD: Duration = Duration::from_secs(10);
const WARM_UP: Duration = Duration::from_secs(2);
/// Longest time for an answer before the run has failed.
const TIMEOUT: Duration = Duration::from_secs(20);
const TOKEN: &str = "benchmark";

fn main() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(bench())
}

async fn bench() -> anyhow::Result<ExitCode> {
    let mut behaviour = Behaviour::default();
    behaviour.set_pair(&format!("delay-ms={}", UPSTREAM_DELAY.as_millis()))?;
    let sim = Sim::start(SimOptions { listen: "127.0.0.1:0".parse()?, behaviour })?;
    let gateway = Gateway::start(sim.addr()).await?;
    let peak = load(&gateway, SERVED_MAX).await?;
    let over = load(&gateway, SERVED_MAX * OVERLOAD).await?;
    println!("{}\n", machine::Machine::here("overload"));
    println!("clients  served/s  turned away/s  turned away p50, p99, max");
    for (clients, figures) in [(SERVED_MAX, &peak), (SERVED_MAX * OVERLOAD, &over)] {
        let ms = |quantile: f64| figures.refusals.value_at_quantile(quantile) as f64 / 1e3;
        println!(
            "{clients:>7} {:>9.0} {:>14.0}  {:.1}, {:.1}, {:.1} ms",
            figures.served_per_second(),
            figures.refused_per_second(),
            ms(0.5),
            ms(0.99),
            ms(1.0),
        );
    }
    let kept = over.served_per_second() / peak.served_per_second();
    let quick = over.refusals.value_at_quantile(0.99) <= 50_000;
    println!("of the peak is served {:.1} % (at least 90)", kept * 100.0);
    println!("99 of 100 are turned away within 50 ms: {}", if quick { "yes" } else { "no" });
    Ok(if kept >= 0.9 && quick { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Figures of a load.
struct Figures {
    served: u64,
    /// Times of refusals, in microseconds.
    refusals: Histogram<u64>,
}

impl Figures {
    fn new() -> anyhow::Result<Self> {
        Ok(Self { served: 0, refusals: Histogram::new_with_bounds(1, 60_000_000, 3)? })
    }

    fn served_per_second(&self) -> f64 {
        self.served as f64 / LOAD.as_secs_f64()
    }

    fn refused_per_second(&self) -> f64 {
        self.refusals.len() as f64 / LOAD.as_secs_f64()
    }
}

/// So many clients, each with a connection of its own, that ask again after every answer.
async fn load(gateway: &Gateway, clients: usize) -> anyhow::Result<Figures> {
    let begin = Instant::now() + WARM_UP;
    let end = begin + LOAD;
    let mut running = JoinSet::new();
    for _ in 0..clients {
        let (address, request) = (gateway.address, Arc::clone(&gateway.request));
        running.spawn(async move {
            let mut figures = Figures::new()?;
            let mut connection = TcpStream::connect(address).await?;
            while Instant::now() < end {
                let sent = Instant::now();
                let answer = tokio::time::timeout(TIMEOUT, exchange(&mut connection, &request));
                let status = answer.await.context("an answer took too long")??;
                let counts = sent >= begin;
                match status {
                    200 => figures.served += u64::from(counts),
                    503 => {
                        let took = u64::try_from(sent.elapsed().as_micros())?;
                        if counts {
                            figures.refusals.record(took.max(1))?;
                        }
                        tokio::time::sleep(RETRY_AFTER).await;
                    }
                    status => bail!("the gateway answered {status}"),
                }
            }
            anyhow::Ok(figures)
        });
    }
    let mut all = Figures::new()?;
    while let Some(client) = running.join_next().await {
        let figures = client??;
        all.served += figures.served;
        all.refusals.add(&figures.refusals)?;
    }
    Ok(all)
}

/// Sends a request and reads the whole answer; gives its status. The connection stays open.
async fn exchange(connection: &mut TcpStream, request: &[u8]) -> anyhow::Result<u16> {
    connection.write_all(request).await?;
    let (mut answer, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = memchr::memmem::find(&answer, b"\r\n\r\n") {
            let head = std::str::from_utf8(&answer[..end])?.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.context("an answer without a length")?.parse()?;
            if answer.len() >= end + 4 + length {
                return Ok(head.get(9..12).context("a status")?.parse()?);
            }
        }
        match connection.read(&mut chunk).await? {
            0 => bail!("the gateway has closed a connection"),
            count => answer.extend_from_slice(&chunk[..count]),
        }
    }
}

/// A gateway as a process of its own, ended on drop.
struct Gateway {
    address: SocketAddr,
    request: Arc<[u8]>,
    process: Child,
    _directory: tempfile::TempDir,
}

impl Gateway {
    async fn start(upstream: SocketAddr) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let file = |name: &str, text: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).map(|()| path)
        };
        let data = directory.path().join("data");
        let routes = file(
            "routes.yaml",
            format!(
                "listeners: [{{ address: 127.0.0.1:0 }}]\n\
                 admin: {{ address: 127.0.0.1:0, token: {TOKEN} }}\n\
                 store: {{ data_dir: {} }}\n\
                 limits: {{ requests_in_flight_max: {SERVED_MAX}, per_account: {{ requests_in_flight_percent: 100 }} }}\n\
                 upstreams: {{ sim: {{ protocol: openai, base_url: \"http://{upstream}/v1\" }} }}\n",
                data.display()
            ),
        )?;
        let models = file(
            "models.yaml",
            "models:\n  m:\n    operations: [chat]\n    targets: [{ upstream: sim }]\n    \
             prices: { input_per_1m_tokens: 0.01, output_per_1m_tokens: 0.01 }\n    \
             limits: { context_tokens_max: 10000, output_tokens_max: 100 }\n"
                .to_owned(),
        )?;
        let mut process = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["serve", "--ready-json", "--log", "error", "--routes"])
            .arg(routes)
            .arg("--models")
            .arg(models)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = process.stdout.take().context("standard output is piped")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let ready: Value = serde_json::from_str(&line).context("the gateway did not start")?;
        let url = |field: &str| ready[field].as_str().context("a URL");
        let key = customer(url("admin_url")?).await?;
        let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let address = url("base_url")?.trim_start_matches("http://").parse()?;
        let request = request.into_bytes().into();
        Ok(Self { address, request, process, _directory: directory })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // One that has ended by itself is as good.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A key of a new account with credit.
async fn customer(admin: &str) -> anyhow::Result<String> {
    // The client asks for TLS to be ready, though nothing here uses it.
    drop(rustls::crypto::ring::default_provider().install_default());
    let http = reqwest::Client::new();
    let post = async |path: String, body: Value| {
        let call = http.post(format!("{admin}/admin/v1/accounts{path}")).bearer_auth(TOKEN);
        let answer = call.json(&body).send().await?.error_for_status()?;
        anyhow::Ok(answer.json::<Value>().await?)
    };
    let account = post(String::new(), json!({"name": "benchmark"})).await?;
    let account = account["id"].as_str().context("an id")?.to_owned();
    post(format!("/{account}/grants"), json!({"amount": "1000", "id": "first"})).await?;
    let key = post(format!("/{account}/keys"), json!({"name": "benchmark"})).await?;
    Ok(key["key"].as_str().context("a key")?.to_owned())
}
