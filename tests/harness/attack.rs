//! Hostile customers and an honest one at one gateway: what the honest one sees meanwhile.

pub(crate) mod door;
pub(crate) mod upstream;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::container::Container;
use super::{Gateway, Visitor, eventually_async};
use door::{CallEnd, Caller, Door, SentCall, Streams};
use upstream::{Pace, Upstream, slow};

/// Connections on which one hostile account begins calls at one time.
const WORKERS: usize = 8;
/// The longest that a worker waits for its call to reach the upstream, or to be refused.
const PATIENCE: Duration = Duration::from_millis(500);

/// The default share of an account, a quarter, is a third of what others leave: of what a number of accounts
/// can have, this is the rest for each.
const LEFT_FOR_ONE: usize = 3;

/// Retries of the honest account where its connection breaks: the default of OpenAI's and Anthropic's SDKs.
const RETRIES: usize = 2;
/// The time before a retry, which begins at half a second in those SDKs.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Bytes that may wait in the kernel for each call: 64 KiB to be sent, and requests on their way in.
const BUFFERED_MAX: usize = 128 * 1024;
/// Calls that are reckoned with at least, where few are let through.
const CALLS_LEAST: usize = 100;

/// The bounds of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// So many file descriptors, or as many as the machine gives if those are fewer.
    Descriptors(u32),
    /// A control group of 150 MiB.
    Container,
}

/// The fate of the calls of hostile accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// Calls are begun, and left as soon as the upstream has them.
    HangUps,
    /// Calls are begun and kept.
    UnderWay,
    /// Calls are begun and kept, and nothing of their answers is read.
    Unread,
}

/// Makes honest calls until `until`, from the time on when the attack is in full force.
async fn honest_calls(
    warm_up: Duration,
    until: Instant,
    mut call: impl AsyncFnMut(&mut HonestCalls),
) -> HonestCalls {
    sleep(warm_up).await;
    let mut seen = HonestCalls::default();
    while Instant::now() < until {
        call(&mut seen).await;
    }
    seen
}

/// An account and a key of it.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) id: String,
    pub(crate) key: String,
}

/// A gateway, its upstream, and those who call it.
pub(crate) struct Arena {
    pub(crate) gateway: Gateway,
    pub(crate) upstream: Upstream,
    pub(crate) hostile: Vec<Account>,
    pub(crate) honest: Account,
    standing: Standing,
    /// Bytes that hostile prompts have beside their number.
    pub(crate) padding: usize,
    numbers: AtomicUsize,
    buffered_most: AtomicUsize,
    anonymous_most: AtomicUsize,
    // Behind the gateway, which must have left it.
    container: Option<Container>,
}

/// Calls of the honest account, and how they ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct HonestCalls {
    pub(crate) calls: usize,
    /// Calls that were made again, over another connection.
    pub(crate) retries: usize,
    pub(crate) failures: Vec<String>,
    pub(crate) slowest: Duration,
    pub(crate) slowest_at: Option<Door>,
}

impl HonestCalls {
    fn add(&mut self, door: Option<Door>, began: Instant, ended: CallEnd) {
        let took = began.elapsed();
        self.calls += 1;
        if took > self.slowest {
            (self.slowest, self.slowest_at) = (took, door);
        }
        if let CallEnd::Badly(why) | CallEnd::Cut(why) = ended {
            self.failures.push(format!("{door:?} after {took:?}: {why}"));
        }
    }
}

impl Standing {
    /// Descriptors that a process may have here.
    fn descriptors(self) -> Option<u32> {
        let Self::Descriptors(expected) = self else { return None };
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let line = limits.lines().find(|line| line.starts_with("Max open files"));
        let hard = line.and_then(|line| line.split_ascii_whitespace().nth(4)?.parse().ok());
        Some(hard.map_or(expected, |hard: u32| hard.min(expected)))
    }
}

impl Arena {
    /// One with `hostile` accounts that have this money, and an honest one.
    pub(crate) async fn start(standing: Standing, pace: Pace, hostile: usize, money: &str) -> Self {
        Self::with_limits(standing, pace, hostile, money, "").await
    }

    /// The same with `limits` of its own, as lines of YAML.
    pub(crate) async fn with_limits(
        standing: Standing,
        pace: Pace,
        hostile: usize,
        money: &str,
        limits: &str,
    ) -> Self {
        let upstream = Upstream::start(pace).await;
        let descriptors = standing.descriptors();
        let (upstreams, models) = files(&upstream);
        let mut gateway = Gateway::defended(descriptors, limits, &upstreams, &models);
        let accounts: Vec<_> = (0..hostile).map(|_| account(&gateway, money)).collect();
        let honest = account(&gateway, "100000.00");
        let container = (standing == Standing::Container).then(|| {
            let container = Container::with_memory(150 << 20);
            gateway.restart_in(&container.path);
            container
        });
        Self {
            gateway,
            upstream,
            hostile: accounts,
            honest,
            standing,
            padding: 0,
            numbers: AtomicUsize::new(1),
            buffered_most: AtomicUsize::default(),
            anonymous_most: AtomicUsize::default(),
            container,
        }
    }

    /// Gives hostile accounts keys of the playground in the place of theirs, as the page of the console
    /// gets them.
    pub(crate) async fn use_playground(&mut self) {
        let console = format!("http://{}/console", self.gateway.address);
        for (number, account) in self.hostile.iter_mut().enumerate() {
            let visitor = Visitor::new(console.clone()).at(format!("198.51.100.{number}"));
            assert_eq!(visitor.get("/signup").await.status, 200);
            let email = format!("hostile{number}@example.com");
            let fields = [("name", "x"), ("email", &email), ("password", "four words in here")];
            assert_eq!(visitor.post("/signup", &fields).await.status, 303);
            let page = visitor.get("/playground").await;
            let setup: Value =
                serde_json::from_str(&page.between("data-setup=\"", "\"")).expect("JSON");
            let token = visitor.token();
            let made =
                visitor.post_as("/playground/key", "", &[("x-csrf-token", &token)], &[]).await;
            let made: Value = serde_json::from_str(&made.text).expect("JSON");
            account.key = made["key"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
            account.id = setup["account"].as_str().unwrap_or_else(|| panic!("{setup}")).to_owned();
            let path = format!("/admin/v1/accounts/{}/grants", account.id);
            self.gateway.admin("POST", &path, &json!({"amount": "10000.00", "id": "more"}));
        }
    }

    /// A client of a hostile account, at an address of many.
    pub(crate) fn hostile(&self, account: usize) -> Caller {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let [.., high, low] = number.to_be_bytes();
        let address = Ipv4Addr::new(127, 66, high, low.max(1));
        let key = self.hostile[account].key.clone();
        // What it does not read stays with the gateway.
        Caller { gateway: self.gateway.address, key, address, receive_bytes: Some(8 * 1024) }
    }

    /// A client of the honest account, at its one address.
    pub(crate) fn honest(&self) -> Caller {
        let address = Ipv4Addr::new(127, 0, 0, 2);
        let key = self.honest.key.clone();
        Caller { gateway: self.gateway.address, key, address, receive_bytes: None }
    }

    /// A number for a slow call.
    pub(crate) fn number(&self) -> usize {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Plays an attack of all hostile accounts through one door for so long, with honest calls through
    /// all doors during it and, once the attackers have gone, after it.
    pub(crate) async fn play(
        &self,
        attack: Attack,
        door: Door,
        model: &str,
        time: Duration,
    ) -> HonestCalls {
        let until = Instant::now() + time;
        let mut seen = HonestCalls::default();
        let attackers = async {
            let workers = (0..self.hostile.len() * WORKERS)
                .map(|worker| self.attack(attack, door, model, worker % self.hostile.len(), until));
            futures_util::future::join_all(workers).await
        };
        let honest =
            honest_calls(time / 4, until, async |seen| self.honest_round(model, seen).await);
        let (held, during, ()) = tokio::join!(attackers, honest, self.sample(until));
        drop(held);
        seen.merge(during);
        self.honest_round(model, &mut seen).await;
        seen
    }

    /// One honest call through each door.
    pub(crate) async fn honest_round(&self, model: &str, seen: &mut HonestCalls) {
        for door in Door::ALL {
            let began = Instant::now();
            let mut ended = self.honest().call(door, model, "hello").await;
            // As the SDKs of the providers do where a connection breaks before there is an answer.
            for _ in 0..RETRIES {
                if !matches!(ended, CallEnd::Cut(_)) {
                    break;
                }
                seen.retries += 1;
                // The pause of those SDKs, which is part of what is measured.
                sleep(RETRY_AFTER).await;
                ended = self.honest().call(door, model, "hello").await;
            }
            seen.add(Some(door), began, ended);
        }
    }

    /// One honest call to a path.
    pub(crate) async fn honest_call(&self, path: &str, body: &str, seen: &mut HonestCalls) {
        let began = Instant::now();
        let ended = self.honest().call_path(path, body).await;
        seen.add(None, began, ended);
    }

    /// Plays calls that are kept and calls that are left through all doors at one time, each with accounts of
    /// its own, and says whether honest calls were served meanwhile.
    pub(crate) async fn play_everything(&self, model: &str, time: Duration) -> HonestCalls {
        let until = Instant::now() + time;
        let workers = (0..self.hostile.len() * WORKERS).map(|worker| {
            let account = worker % self.hostile.len();
            let door = Door::ALL[account % Door::ALL.len()];
            let attack = [Attack::Unread, Attack::HangUps][account / Door::ALL.len() % 2];
            self.attack(attack, door, model, account, until)
        });
        let honest = async {
            let mut seen = HonestCalls::default();
            while Instant::now() < until {
                self.honest_round(model, &mut seen).await;
            }
            seen
        };
        tokio::join!(futures_util::future::join_all(workers), honest, self.sample(until)).1
    }

    /// Floods a counter of tokens from all hostile accounts, with honest calls to the path beside it.
    pub(crate) async fn play_counts(
        &self,
        counter: &str,
        path: &str,
        body: &str,
        time: Duration,
    ) -> HonestCalls {
        let until = Instant::now() + time;
        let flood = async |account: usize| {
            while Instant::now() < until {
                let _counted = self.hostile(account).call_path(counter, body).await;
            }
        };
        let floods = (0..self.hostile.len() * 2).map(|one| flood(one % self.hostile.len()));
        let honest =
            honest_calls(time / 4, until, async |seen| self.honest_call(path, body, seen).await);
        let (_, mut seen) = tokio::join!(futures_util::future::join_all(floods), honest);
        self.honest_call(path, body, &mut seen).await;
        seen
    }

    /// Opens as many WebSockets as there can be, sends this once on each, reads what comes, and says no
    /// more; honest calls bring 1 MB each.
    pub(crate) async fn play_idle_websockets(&self, message: &[u8], time: Duration) -> HonestCalls {
        let until = Instant::now() + time;
        let open = async |account: usize| {
            let mut held: Vec<TcpStream> = Vec::new();
            while Instant::now() < until {
                let opened = async {
                    let mut stream = self.hostile(account).websocket().await?;
                    stream.write_all(message).await?;
                    door::next_text(&mut stream).await?;
                    Ok::<_, std::io::Error>(stream)
                };
                match tokio::time::timeout(Duration::from_secs(2), opened).await {
                    Ok(Ok(stream)) => held.push(stream),
                    _ => sleep(Duration::from_millis(20)).await,
                }
            }
            held
        };
        let sockets = (0..self.hostile.len() * 2).map(|one| open(one % self.hostile.len()));
        let large = "y".repeat(1_000_000);
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{large}"}}]}}"#);
        let path = "/v1/chat/completions";
        let honest =
            honest_calls(time / 2, until, async |seen| self.honest_call(path, &body, seen).await);
        let (held, mut seen) = tokio::join!(futures_util::future::join_all(sockets), honest);
        self.honest_call("/v1/chat/completions", &body, &mut seen).await;
        let sockets: usize = held.iter().map(Vec::len).sum();
        println!("  {sockets} WebSockets were opened and answered");
        seen
    }

    /// Honest calls while the process may open nothing more, and afterwards.
    pub(crate) async fn play_without_descriptors(&self) -> [HonestCalls; 2] {
        let limit = |count: usize| {
            let count = format!("--nofile={count}:1024");
            let set = std::process::Command::new("prlimit")
                .args(["--pid", &self.gateway.id().to_string(), &count])
                .status();
            assert!(set.is_ok_and(|status| status.success()), "prlimit {count}");
        };
        let [mut refused, mut served] = [HonestCalls::default(), HonestCalls::default()];
        // Customers' connections are open before: what lacks is one to the upstream.
        let connections = futures_util::future::join_all(
            (0..12).map(|_| async { self.honest().connect().await }),
        );
        let connections = connections.await;
        let are_open = async || self.gateway.metric("tollgate_connections") >= 12.0;
        eventually_async("the gateway has accepted them", are_open).await;
        // Below the three that are always open: there are gaps in the numbers above.
        limit(3);
        for stream in connections {
            let began = Instant::now();
            let sent = stream.expect("a connection");
            let ended = self.honest().ask_over(sent).await;
            refused.add(Some(Door::Http1), began, ended);
        }
        limit(1024);
        for _ in 0..3 {
            self.honest_round("m", &mut served).await;
        }
        [refused, served]
    }

    /// Notes the most that the kernel has buffered for customers' connections at one time, and that the
    /// container's process has taken.
    async fn sample(&self, until: Instant) {
        while Instant::now() < until {
            self.buffered_most.fetch_max(buffered(self.gateway.address.port()), Ordering::Relaxed);
            if let Some(container) = &self.container {
                self.anonymous_most.fetch_max(container.anonymous_bytes(), Ordering::Relaxed);
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn attack(
        &self,
        attack: Attack,
        door: Door,
        model: &str,
        account: usize,
        until: Instant,
    ) -> (Vec<SentCall>, Vec<Streams>) {
        let (mut held, mut connections) = (Vec::new(), Vec::new());
        let model = if door == Door::WebSocket { &format!("{model}-responses") } else { model };
        while Instant::now() < until {
            let (caller, number) = (self.hostile(account), self.number());
            let prompt = slow(number) + &"y".repeat(self.padding);
            let sent = match door {
                // One connection has as many streams as it may.
                Door::Http2 => self.stream(&caller, &mut connections, model, &prompt).await,
                _ => caller.send(door, model, &prompt).await,
            };
            if let Ok(mut sent) = sent
                && self.arrives(number, &mut sent).await
            {
                if attack != Attack::HangUps {
                    held.push(sent);
                }
            } else {
                // It was refused: whoever attacks tries again.
                sleep(Duration::from_millis(5)).await;
            }
        }
        (held, connections)
    }

    /// A call on the newest connection of HTTP/2, or on another one where that takes no more.
    async fn stream(
        &self,
        caller: &Caller,
        connections: &mut Vec<Streams>,
        model: &str,
        prompt: &str,
    ) -> std::io::Result<SentCall> {
        const STREAMS: usize = 50;
        let is_full = connections.last().is_none_or(|streams| streams.sent >= STREAMS);
        if is_full {
            connections.push(caller.streams().await?);
        }
        let streams = connections.last_mut().expect("a connection");
        let sent = tokio::time::timeout(PATIENCE, streams.send(caller, model, prompt)).await;
        match sent {
            Ok(Ok(answer)) => Ok(SentCall::Stream(answer, None)),
            Ok(Err(error)) => {
                connections.pop();
                Err(error)
            }
            Err(_) => {
                streams.sent = STREAMS;
                Err(std::io::ErrorKind::TimedOut.into())
            }
        }
    }

    /// Waits until a call reaches the upstream; false when it is refused.
    async fn arrives(&self, number: usize, sent: &mut SentCall) -> bool {
        let arrives = async {
            tokio::select! {
                () = self.upstream.arrival(number) => true,
                () = sent.stirs() => self.upstream.has(number),
            }
        };
        tokio::time::timeout(PATIENCE, arrives).await.unwrap_or(false)
    }

    /// A line for the record.
    pub(crate) fn report(&mut self, attack: &str, door: &str, seen: &HonestCalls) -> Vec<String> {
        let is_running = self.gateway.is_running();
        let (resident, descriptors) = match is_running {
            true => (self.gateway.rss_bytes_max() >> 20, self.gateway.descriptors()),
            false => (0, 0),
        };
        let anonymous = match self.anonymous_most.load(Ordering::Relaxed) >> 20 {
            0 => String::new(),
            anonymous => format!(" ({anonymous} anonymous)"),
        };
        let at = seen.slowest_at.map(|door| format!(" ({door:?})")).unwrap_or_default();
        println!(
            "| {attack} | {door} | {:?} | {} | {} | {} | {:.2} s{at} | {resident} MiB{anonymous} | {} MiB | {} | {descriptors} |",
            self.standing,
            seen.calls,
            seen.failures.len(),
            seen.retries,
            seen.slowest.as_secs_f64(),
            self.buffered_most.load(Ordering::Relaxed) >> 20,
            self.upstream.slow_most(),
        );
        let mut faults = Vec::new();
        let cell = format!("{attack}, {door}, {:?}", self.standing);
        if let Some(first) = seen.failures.first() {
            let (failed, calls) = (seen.failures.len(), seen.calls);
            faults.push(format!("{cell}: {failed} of {calls} honest calls failed: {first}"));
        }
        if !is_running {
            faults.push(format!("{cell}: the process has ended"));
            return faults;
        }
        let max = self.gateway.metric("tollgate_upstream_calls_max");
        let (most, accounts) = (self.upstream.slow_most(), self.hostile.len());
        let share = max * accounts as f64 / (accounts + LEFT_FOR_ONE) as f64;
        if most as f64 > share.ceil() + accounts as f64 {
            faults.push(format!("{cell}: {most} calls reached the upstream, of {max} in all"));
        }
        let buffered = self.buffered_most.load(Ordering::Relaxed);
        if buffered > most.max(CALLS_LEAST) * BUFFERED_MAX {
            faults.push(format!("{cell}: {buffered} bytes wait in sockets, for {most} calls"));
        }
        let log = std::fs::read_to_string(self.gateway.path("log")).unwrap_or_default();
        if let Some(line) = log.lines().find(|line| line.contains("Too many open files")) {
            faults.push(format!("{cell}: {line:.300}"));
        }
        let all = self.gateway.admin("GET", "/admin/v1/upstreams", &Value::Null);
        let targets = all["upstreams"].as_array().into_iter().flatten();
        let targets = targets.flat_map(|one| one["targets"].as_array().into_iter().flatten());
        let shut: Vec<_> = targets.filter(|target| target["state"] != "ready").collect();
        if !shut.is_empty() {
            faults.push(format!("{cell}: targets are not ready: {:.400}", format!("{shut:?}")));
        }
        faults
    }
}

impl HonestCalls {
    /// Adds other calls.
    pub(crate) fn merge(&mut self, other: Self) {
        self.calls += other.calls;
        self.retries += other.retries;
        self.failures.extend(other.failures);
        if other.slowest > self.slowest {
            (self.slowest, self.slowest_at) = (other.slowest, other.slowest_at);
        }
    }
}

/// The head of a table of [`Arena::report`]'s lines.
pub(crate) fn table() {
    println!(
        "\n| Attack | Door | Gateway | Honest calls | Failed | Retried | Slowest | Resident at most | \
         Sockets' buffers at most | Upstream calls at most | Descriptors at the end |\n\
         |---|---|---|---|---|---|---|---|---|---|---|"
    );
}

/// Bytes in the kernel's send and receive queues of connections to this port.
fn buffered(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let local = format!(":{port:04X}");
    let lines = table.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let of_port = lines.filter(|words| words.get(1).is_some_and(|at| at.ends_with(&local)));
    let queues = of_port.filter_map(|words| {
        let (send, receive) = words.get(4)?.split_once(':')?;
        let bytes = |text| usize::from_str_radix(text, 16).ok();
        Some(bytes(send)? + bytes(receive)?)
    });
    queues.sum()
}

/// A new account with a key.
fn account(gateway: &Gateway, money: &str) -> Account {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let id = text(&gateway.admin("POST", "/admin/v1/accounts", &json!({"name": "x"}))["id"]);
    if !money.is_empty() {
        let grant = json!({"amount": money, "id": "first"});
        gateway.admin("POST", &format!("/admin/v1/accounts/{id}/grants"), &grant);
    }
    let path = format!("/admin/v1/accounts/{id}/keys");
    let key = text(&gateway.admin("POST", &path, &json!({"name": "x"}))["key"]);
    Account { id, key }
}

/// Upstreams and models: `m` through every door, `few` with a limit of its own on requests at one time,
/// `claude` and `g` whose tokens can be counted.
fn files(upstream: &Upstream) -> (String, String) {
    let at = upstream.address;
    let upstreams = format!(
        "  o: {{ protocol: openai, base_url: 'http://{at}/v1' }}
  a: {{ protocol: anthropic, base_url: 'http://{at}' }}
  g: {{ protocol: gemini, base_url: 'http://{at}/v1beta' }}
console: {{ sign_up: open, trial_credit: 5 }}
"
    );
    let model = |name: &str, operation: &str, upstream: &str, more: &str| {
        format!(
            "  {name}:
    operations: [{operation}]
    targets: [{{ upstream: {upstream} }}]
    prices: {{ input_per_1m_tokens: 1, output_per_1m_tokens: 10 }}
    limits: {{ context_tokens_max: 10000000, output_tokens_max: 1000 }}
{more}"
        )
    };
    let few = "    rate_limits: { concurrent_requests: 8 }\n";
    // With reasoning, of which an upstream may bill what nobody has seen: abandoned calls are read on.
    let models = [
        model("m", "chat", "o", ""),
        model("m-responses", "responses", "o", ""),
        model("few", "chat", "o", few),
        model("few-responses", "responses", "o", few),
        model("claude", "messages", "a", ""),
        model("g", "generate_content", "g", ""),
    ];
    (upstreams, format!("models:\n{}", models.concat()))
}
