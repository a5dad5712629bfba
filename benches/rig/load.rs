//! The load: closed loops, an open loop, and streams.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use super::http::Response;

/// Size of a read: larger than any small response, and many chunks of a stream.
const READ_BYTES: usize = 64 * 1024;
/// Longest time for any response. A subject that exceeds it fails the run. Below valgrind, without optimization
/// and on a busy machine, an agent's request takes half a minute.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Most requests of one client in a closed loop: ten times what any subject answers in the longest loop.
const REQUESTS_PER_CLIENT_MAX: u64 = 1_000_000;
/// Sleeping is exact to about this much; the rest is waited for actively.
const SLEEP_SLACK: Duration = Duration::from_micros(120);

/// The target of a load, and the bytes of its requests, which are sent in turn.
#[derive(Clone)]
pub(crate) struct Aim {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<[Vec<u8>]>,
}

impl Aim {
    /// The request with this number, counted on from the first again behind the last.
    pub(crate) fn request(&self, number: usize) -> &[u8] {
        let turn = number.checked_rem(self.requests.len()).unwrap_or_default();
        self.requests.get(turn).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Results of a closed loop.
pub(crate) struct Throughput {
    pub(crate) requests: u64,
    pub(crate) took: Duration,
}

impl Throughput {
    pub(crate) fn per_second(&self) -> f64 {
        self.requests as f64 / self.took.as_secs_f64()
    }
}

/// `connections` clients, each sending its next request when the answer to the last has come.
pub(crate) async fn closed(
    aim: &Aim,
    connections: usize,
    duration: Duration,
) -> anyhow::Result<Throughput> {
    let begin = Instant::now();
    let end = begin + duration;
    let mut clients = JoinSet::new();
    for first in 0..connections {
        let aim = aim.clone();
        clients.spawn(async move {
            let mut connection = Connection::open(&aim).await?;
            let mut requests: u64 = 0;
            let mut turns = (first..).step_by(connections);
            while Instant::now() < end && requests < REQUESTS_PER_CLIENT_MAX {
                let turn = turns.next().unwrap_or_default();
                connection.exchange(&aim, turn).await?;
                requests += 1;
            }
            anyhow::Ok(requests)
        });
    }
    let mut requests = 0;
    while let Some(client) = clients.join_next().await {
        requests += client??;
    }
    Ok(Throughput { requests, took: begin.elapsed() })
}

/// `streams` streams at once, each read to its end, which must be `end`. The sum of their events.
pub(crate) async fn streams(aim: &Aim, streams: usize, end: &'static [u8]) -> anyhow::Result<u64> {
    let mut clients = JoinSet::new();
    for number in 0..streams {
        let aim = aim.clone();
        clients.spawn(async move {
            let mut connection = Connection::open(&aim).await?;
            let response = connection.exchange(&aim, number).await?;
            ensure!(response.ends_with(end), "a stream without {}", end.escape_ascii());
            anyhow::Ok(response.events)
        });
    }
    let mut events = 0;
    while let Some(client) = clients.join_next().await {
        events += client??;
    }
    Ok(events)
}

/// Clients that are connected, for a number of requests rather than a time.
pub(crate) struct Connections {
    aim: Aim,
    open: Vec<Connection>,
}

impl Connections {
    pub(crate) async fn open(aim: &Aim, connections: usize) -> anyhow::Result<Self> {
        let mut open = Vec::with_capacity(connections);
        for _ in 0..connections {
            open.push(Connection::open(aim).await?);
        }
        Ok(Self { aim: aim.clone(), open })
    }

    /// Sends the requests of `aim` from here on, which must be at the same address.
    pub(crate) fn turn_to(&mut self, aim: &Aim) {
        self.aim = aim.clone();
    }

    /// `requests` requests, as many by each client, which sends its next when the answer to the last
    /// has come.
    pub(crate) async fn exchange(&mut self, requests: usize) -> anyhow::Result<()> {
        let each = requests / self.open.len();
        let mut clients = JoinSet::new();
        for mut connection in self.open.drain(..) {
            let aim = self.aim.clone();
            clients.spawn(async move {
                for number in 0..each {
                    connection.exchange(&aim, number).await?;
                }
                anyhow::Ok(connection)
            });
        }
        while let Some(client) = clients.join_next().await {
            self.open.push(client??);
        }
        Ok(())
    }
}

/// One request on a connection of its own.
pub(crate) async fn once(aim: &Aim) -> anyhow::Result<()> {
    Connection::open(aim).await?.exchange(aim, 0).await.map(drop)
}

struct Connection {
    stream: tokio::net::TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(aim: &Aim) -> anyhow::Result<Self> {
        let stream = tokio::net::TcpStream::connect(aim.address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; READ_BYTES] })
    }

    async fn exchange(&mut self, aim: &Aim, number: usize) -> anyhow::Result<Response> {
        let exchange = self.exchange_unbounded(aim, number);
        tokio::time::timeout(TIMEOUT, exchange).await.context("no answer")?
    }

    async fn exchange_unbounded(&mut self, aim: &Aim, number: usize) -> anyhow::Result<Response> {
        self.stream.write_all(aim.request(number)).await?;
        let mut response = Response::default();
        while !response.is_complete() {
            let read = self.stream.read(&mut self.buffer).await?;
            ensure!(read > 0, "the connection closed before the response was complete");
            response.feed(self.buffer.get(..read).unwrap_or_default())?;
        }
        if response.closes {
            *self = Self::open(aim).await?;
        }
        Ok(response)
    }
}

/// Results of an open loop.
pub(crate) struct Latencies {
    /// Of the requests that were answered, in nanoseconds.
    pub(crate) histogram: Histogram<u64>,
    /// Requests without a whole answer of status 200.
    pub(crate) failed: u64,
}

impl Latencies {
    /// None yet.
    pub(crate) fn new() -> anyhow::Result<Self> {
        // From 1 ns to a minute, exact to three digits.
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
        Ok(Self { histogram, failed: 0 })
    }

    /// Adds those of another loop.
    pub(crate) fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        self.failed += other.failed;
        Ok(self.histogram.add(&other.histogram)?)
    }

    /// In milliseconds.
    pub(crate) fn quantile_ms(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / 1e6
    }
}

/// `rate` requests a second, whatever the answers do. Each latency counts from the instant at which
/// the request was due, so a stall is seen by every request that it delays.
///
/// Blocks: sleeping threads keep the schedule to some microseconds, timers of a runtime only to a
/// millisecond.
pub(crate) fn open(aim: &Aim, rate: u32, duration: Duration) -> anyhow::Result<Latencies> {
    /// Enough for answers of 300 ms at 200 requests a second before a request waits for a client.
    const CLIENTS: u32 = 64;
    let begin = Instant::now() + Duration::from_millis(50);
    let interval = Duration::from_secs(1) / rate;
    let total = rate * u32::try_from(duration.as_secs())?;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|first| {
            let aim = aim.clone();
            std::thread::spawn(move || {
                let mut latencies = Latencies::new()?;
                let mut connection = Blocking::open(&aim)?;
                for number in (first..total).step_by(CLIENTS as usize) {
                    let due = begin + interval * number;
                    wait_until(due);
                    if let Err(error) = connection.exchange(&aim, number as usize) {
                        eprintln!("a request failed: {error:#}");
                        latencies.failed += 1;
                        connection = Blocking::open(&aim)?;
                        continue;
                    }
                    latencies.histogram.record(u64::try_from(due.elapsed().as_nanos())?)?;
                }
                anyhow::Ok(latencies)
            })
        })
        .collect();
    let mut latencies = Latencies::new()?;
    for client in clients {
        let of_client = client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?;
        latencies.add(&of_client?)?;
    }
    Ok(latencies)
}

fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    std::thread::sleep(left.saturating_sub(SLEEP_SLACK));
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}

struct Blocking {
    stream: std::net::TcpStream,
    buffer: Vec<u8>,
}

impl Blocking {
    fn open(aim: &Aim) -> anyhow::Result<Self> {
        let stream = std::net::TcpStream::connect(aim.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream, buffer: vec![0; READ_BYTES] })
    }

    fn exchange(&mut self, aim: &Aim, number: usize) -> anyhow::Result<()> {
        self.stream.write_all(aim.request(number))?;
        let mut response = Response::default();
        while !response.is_complete() {
            let read = self.stream.read(&mut self.buffer)?;
            ensure!(read > 0, "the connection closed before the response was complete");
            response.feed(self.buffer.get(..read).unwrap_or_default())?;
        }
        if response.closes {
            *self = Self::open(aim)?;
        }
        Ok(())
    }
}
