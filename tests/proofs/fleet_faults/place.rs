//! A fleet of this file's tests: what it sells, who calls it, and how often something goes wrong.

use std::fmt;
use std::time::Duration;

use tollgate::sim::Sim;

use crate::harness::load::{Call, Calling};
use crate::harness::nodes::{Nodes, Plan};
use crate::harness::postgres::{Cut, Postgres};
use crate::harness::{let_pass, rounds, simulator};

/// Price of a call in nano-dollars: 10 tokens at $1 a million, and 5 at $10.
pub(crate) const PRICE: i64 = 60_000;
/// A call of whose answer nobody knows beforehand how long it is: more is held than it costs.
pub(crate) const CHAT: &str =
    r#"{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"hi"}]}"#;
/// Usage equal to the hold.
pub(crate) const EXACT: &str =
    r#"{"model":"exact","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}"#;
/// A call that holds a dollar, takes [`AGENT_MS`], and costs as little as the others.
pub(crate) const AGENT: &str =
    r#"{"model":"agent","max_tokens":100000,"messages":[{"role":"user","content":"hi"}]}"#;
/// How long it takes at the upstream, in milliseconds.
pub(crate) const AGENT_MS: u64 = 800;
/// Price of a call with [`EXACT`], in nano-dollars.
pub(crate) const EXACT_PRICE: i64 = EXACT.len() as i64 * 1000 + 5 * 10_000;
/// More than any round spends.
pub(crate) const PLENTY: &str = "100.00";
/// Price of a video, in nano-dollars.
pub(crate) const VIDEO_PRICE: i64 = 500_000_000;

/// Rounds of a test, each with numbers of its own.
pub(crate) struct Rounds {
    seed: u64,
    count: u64,
}

impl Rounds {
    /// So many as [`rounds`] makes of `count`.
    #[expect(clippy::disallowed_methods, reason = "a failure is repeated with its seed")]
    pub(crate) fn of(test: &str, count: u64) -> Self {
        let request = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
        let seed = request("TOLLGATE_FLEET_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
        let count = rounds(count);
        println!("{test}: seed {seed}, {count} rounds");
        Self { seed, count }
    }

    /// Plays them.
    pub(crate) fn play(&self, mut round: impl FnMut(&mut fastrand::Rng)) {
        for number in 0..self.count {
            println!("round {number}");
            round(&mut fastrand::Rng::with_seed(self.seed.wrapping_add(number)));
        }
    }
}

/// Settings of a test's nodes.
pub(crate) struct Fleet {
    pub(crate) nodes: Nodes,
    pub(crate) upstream: Sim,
}

/// How long calls take at the upstream, in milliseconds.
pub(crate) const UPSTREAM_MS: u64 = 15;

impl Fleet {
    /// Three nodes on a database, with a wire to it that can be cut if `wire_to` is its port.
    pub(crate) fn start(url: &str, wire_to: Option<u16>, lease: &'static str) -> Self {
        Self::with_clocks(url, wire_to, lease, [None; 3])
    }

    /// The same with wrong clocks.
    pub(crate) fn with_clocks(
        url: &str,
        wire_to: Option<u16>,
        lease: &'static str,
        clocks: [Option<&'static str>; 3],
    ) -> Self {
        let upstream = simulator(&[]);
        let base = format!("http://{}/sim:delay-ms={UPSTREAM_MS}", upstream.addr());
        let upstreams = format!(
            "shutdown: {{ delay: 1500ms, grace: 10s }}
upstreams:
  up: {{ protocol: openai, base_url: '{base};usage=prompt=10,completion=5/v1', credential: sk-upstream-of-a-test }}
  agent:
    protocol: openai
    base_url: 'http://{}/sim:delay-ms={AGENT_MS};usage=prompt=10,completion=5/v1'
    credential: sk-upstream-of-a-test
  exact:
    protocol: openai
    base_url: '{base};usage=prompt={},completion=5/v1'
    credential: sk-upstream-of-a-test
  video:
    protocol: dashscope
    base_url: 'http://{}/sim:task-pending-ms=20;task-running-ms=30'
    credential: sk-upstream-of-a-test
tasks: {{ repeat_window: none, poll_min: 50ms, poll_max: 100ms }}
routes:
  - {{ path: /v1/chat/completions, operation: chat }}
  - {{ path: /v1/videos/generations, operation: video }}
console: {{ sign_up: open, trial_credit: 5 }}
",
            upstream.addr(),
            EXACT.len(),
            upstream.addr()
        );
        let (url, models) = (url.to_owned(), MODELS.to_owned());
        let plan = Plan { url, wire_to, lease, upstreams, models, clocks };
        Self { nodes: Nodes::start(&plan), upstream }
    }

    /// Six who call all nodes all the time.
    pub(crate) fn calling(&self, keys: &[&str]) -> Calling {
        Calling {
            to: self.nodes.listens(),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            callers: 6,
            pause: Duration::from_millis(5),
            body: CHAT.to_owned(),
        }
    }

    /// Each node's wire to the database.
    pub(crate) fn wires(&self) -> impl Iterator<Item = &Cut> {
        self.nodes.nodes.iter().filter_map(|node| node.wire.as_ref())
    }

    /// The first node's wire to the database.
    pub(crate) fn wire(&self) -> &Cut {
        self.nodes.nodes[0].wire.as_ref().expect("a wire")
    }
}

const MODELS: &str = "models:
  m:
    operations: [chat]
    targets: [{ upstream: up }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 10 }
    limits: { context_tokens_max: 100000, output_tokens_max: 1000 }
  exact:
    operations: [chat]
    targets: [{ upstream: exact }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 10 }
    limits: { context_tokens_max: 100000, output_tokens_max: 1000 }
  agent:
    operations: [chat]
    targets: [{ upstream: agent }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 10 }
    limits: { context_tokens_max: 200000, output_tokens_max: 100000 }
  vf2.7-t2v:
    operations: [video]
    targets: [{ upstream: video, model: wan2.7-t2v }]
    prices: { per_second: 0.10 }
    limits: { resolutions: [720p], seconds_min: 2, seconds_max: 15 }
";

/// How many calls ended in each way.
pub(crate) struct Tally<'a>(pub(crate) &'a [Call]);

impl fmt::Display for Tally<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ways = std::collections::BTreeMap::new();
        for call in self.0 {
            *ways.entry((call.node, call.status, call.code.as_str())).or_insert(0) += 1;
        }
        write!(f, "(node, status, code): {ways:?}")
    }
}

/// Sleeps for so many milliseconds.
pub(crate) fn pass(ms: u64) {
    let_pass(Duration::from_millis(ms), "a fault or a load lasts for as long");
}

/// A database of its own on the server that the tests share.
pub(crate) fn shared(name: &str) -> (&'static Postgres, String, String) {
    let server = Postgres::shared();
    let (database, url) = server.database(name);
    (server, database, url)
}
