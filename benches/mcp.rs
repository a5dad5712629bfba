//! The cost of an agent's call: the CPU time of a chat over the Model Context Protocol against that of the
//! same chat over HTTP.
//!
//! `cargo bench --bench mcp` runs one gateway over one simulated upstream, and puts both loads on it in
//! slices, in turns: the clock of a machine that is shared changes from second to second, and both
//! must meet the same one. A call of an agent should cost at most half as much again.
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

mod rig;

use rig::load::{self, Aim};
use rig::process::Process;
use rig::{account, body, gateway, http, median};

/// Connections of each load.
const CONNECTIONS: usize = 32;
/// Duration of a slice, and the number of slices of each load.
const SLICE: Duration = Duration::from_secs(2);
const SLICES: usize = 9;
const WARM_UP: Duration = Duration::from_secs(2);
/// Settlements that are written later are part of a call's cost.
const AFTERMATH: Duration = Duration::from_millis(250);
/// The bar.
const RATIO_MAX: f64 = 1.5;

fn main() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(bench())
}

async fn bench() -> anyhow::Result<ExitCode> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let upstream = Process::start(command.args(["sim", "--listen", "127.0.0.1:0", "blind=on"]))?;
    let directory = tempfile::tempdir()?;
    let upstream_at = gateway::openai_upstream(upstream.ready_field("address")?);
    gateway::write_files(directory.path(), "", &upstream_at, &gateway::chat_model())?;
    let gateway = gateway::start(directory.path())?;
    let address: SocketAddr =
        gateway.ready_field("base_url")?.trim_start_matches("http://").parse()?;
    let keys = account::keys(gateway.ready_field("admin_url")?, 1, 1).await?;
    let key = keys.first().context("a key")?;
    let chat = body::chat(gateway::MODEL, false, 0);
    let aims = [
        Aim { address, requests: Arc::new([over_http(key, &chat)]) },
        Aim { address, requests: Arc::new([as_agent(key, &chat)?]) },
    ];
    check(address, key, &chat).await?;
    for aim in &aims {
        load::closed(aim, CONNECTIONS, WARM_UP).await?;
    }
    let mut cpu_us: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..SLICES {
        for (aim, figures) in aims.iter().zip(&mut cpu_us) {
            let before = gateway.cpu()?;
            let slice = load::closed(aim, CONNECTIONS, SLICE).await?;
            tokio::time::sleep(AFTERMATH).await;
            let cpu = gateway.cpu()? - before;
            figures.push(cpu.as_secs_f64() * 1e6 / slice.requests as f64);
        }
    }
    gateway.stop()?;
    let pairs = cpu_us[0].iter().zip(&cpu_us[1]);
    let ratio = median::median(pairs.map(|(http, agent)| agent / http).collect());
    let ratio = ratio.context("no slices")?;
    let [http, agent] = cpu_us.map(median::median);
    println!("{}\n", rig::machine::Machine::here("mcp"));
    println!("CPU per call, median of {SLICES} slices");
    println!("over HTTP     {:>7.1} µs", http.context("no slices")?);
    println!("as an agent   {:>7.1} µs", agent.context("no slices")?);
    println!("ratio         {ratio:>7.2} (at most {RATIO_MAX})");
    Ok(if ratio <= RATIO_MAX { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn over_http(key: &str, chat: &[u8]) -> Vec<u8> {
    http::post("/v1/chat/completions", key, "application/json", chat)
}

/// The same chat as the call of a tool, in the version of the protocol in which every request stands
/// by itself.
fn call(chat: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut arguments: Value = serde_json::from_slice(chat)?;
    arguments.as_object_mut().context("an object")?.remove("stream");
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "chat",
        "arguments": arguments,
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }});
    Ok(call.to_string().into_bytes())
}

/// The headers of the call, beside those that every request has.
const HEADERS: [(&str, &str); 4] = [
    ("accept", "application/json, text/event-stream"),
    ("mcp-protocol-version", "2026-07-28"),
    ("mcp-method", "tools/call"),
    ("mcp-name", "chat"),
];

fn as_agent(key: &str, chat: &[u8]) -> anyhow::Result<Vec<u8>> {
    let lines: String =
        HEADERS.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let plain = http::post("/mcp", key, "application/json", &call(chat)?);
    // Behind the request line.
    let end = memchr::memmem::find(&plain, b"\r\n").context("a request line")? + 2;
    let (first, rest) = plain.split_at(end);
    Ok([first, lines.as_bytes(), rest].concat())
}

/// Both must succeed, or nothing is measured.
async fn check(address: SocketAddr, key: &str, chat: &[u8]) -> anyhow::Result<()> {
    let client = reqwest::Client::new();
    let mut request = client.post(format!("http://{address}/mcp")).bearer_auth(key);
    for (name, value) in HEADERS {
        request = request.header(name, value);
    }
    let request = request.header("content-type", "application/json").body(call(chat)?);
    let answer: Value = request.send().await?.json().await?;
    ensure!(answer["result"]["isError"] == false, "the call failed: {answer}");
    Ok(())
}
