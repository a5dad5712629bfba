//! A gateway over simulated upstreams, good and bad ones, with customers of every kind.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate::sim::Sim;

use crate::harness::{Gateway, ask, chat_model, simulator};

/// Customers at a time.
const CUSTOMERS: usize = 4;
/// The pause of a customer between two calls: some 30 calls a second of each.
const PAUSE: Duration = Duration::from_millis(30);
/// The load ends by itself after this time.
const LASTS: Duration = Duration::from_secs(90);

const VIDEO: &str = "  gif-video:
    operations: [video]
    targets: [{ upstream: xai, model: grok-imagine-video }]
    prices: { per_second: 0.00007 }
    limits: { resolutions: [480p, 720p], seconds_min: 1, seconds_max: 15, reference_images_max: 1 }
";

/// A running load.
pub(crate) struct Load {
    gateway: Arc<Gateway>,
    _sim: Sim,
    stop: Arc<AtomicBool>,
    customers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts upstreams, gateway and customers.
    pub(crate) fn start() -> Self {
        let sim = simulator(&[]);
        let at = sim.addr();
        let chat = |name: &str, settings: &str| {
            format!("  {name}: {{ protocol: openai, base_url: 'http://{at}/sim:{settings}/v1' }}\n")
        };
        let upstreams = [
            chat("good", "delay-ms=20"),
            chat("broken", "fault=status=500"),
            chat("cut", "fault=cut-after=2"),
            chat("silent", "fault=usage-missing"),
            format!("  xai: {{ protocol: xai, base_url: 'http://{at}/sim:task-pending-ms=5;task-running-ms=5' }}\n"),
            "tasks: { repeat_window: none, poll_min: 50ms, poll_max: 100ms, webhook_hosts: ['127.0.0.1:*'] }\n".to_owned(),
        ]
        .concat();
        let chat = ["good", "broken", "cut", "silent"].map(|name| chat_model(name, name)).concat();
        let limited = chat_model("limited", "good");
        let models = format!(
            "models:\n{chat}{limited}    rate_limits: {{ requests_per_minute: 60 }}\n{VIDEO}"
        );
        let gateway = Arc::new(Gateway::logging(&upstreams, &models));
        let stop = Arc::new(AtomicBool::new(false));
        let customers = (0..CUSTOMERS)
            .map(|_| {
                let (gateway, stop) = (Arc::clone(&gateway), Arc::clone(&stop));
                std::thread::spawn(move || call_until(&stop, &gateway))
            })
            .collect();
        Self { gateway, _sim: sim, stop, customers }
    }

    /// The gateway's admin address.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.gateway.admin
    }

    /// True if every customer still gets what it expects.
    pub(crate) fn goes_on(&self) -> bool {
        self.customers.iter().all(|customer| !customer.is_finished())
    }

    /// Ends the load.
    pub(crate) fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for customer in std::mem::take(&mut self.customers) {
            customer.join().expect("a customer got what it expected");
        }
    }
}

impl Drop for Load {
    /// Whoever calls shares the gateway, which ends with the last of them.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for customer in self.customers.drain(..) {
            drop(customer.join());
        }
    }
}

fn call_until(stop: &AtomicBool, gateway: &Gateway) {
    let ends = Instant::now() + LASTS;
    let chat = |model: &str, stream: bool| {
        let messages = json!([{"role": "user", "content": "hi"}]);
        let body = json!({"model": model, "stream": stream, "messages": messages}).to_string();
        ask(gateway.address, &gateway.chat_json(body)).status()
    };
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) && Instant::now() < ends {
        let (found, expected): (u16, &[u16]) = match round % 8 {
            0 => (chat("good", true), &[200]),
            4 => (chat("limited", true), &[200, 429]),
            1 | 5 => (chat("good", false), &[200]),
            2 => (chat("broken", false), &[502]),
            // Nothing, once the target has been given up.
            3 => (chat("cut", true), &[200, 502]),
            6 => (chat("silent", false), &[200]),
            _ => (chat("no-such-model", false), &[404]),
        };
        assert!(expected.contains(&found), "round {round}: {found}, expected {expected:?}");
        if round % 40 == 0 {
            film(gateway);
        }
        round += 1;
        std::thread::sleep(PAUSE);
    }
}

/// A video whose end is announced where nobody listens.
fn film(gateway: &Gateway) {
    let body: Value = json!({
        "model": "gif-video",
        "prompt": "a lighthouse",
        "duration": 2,
        "webhook_url": "http://127.0.0.1:9/hook",
    });
    let body = body.to_string();
    let lines = format!("Content-Length: {}\r\n", body.len());
    let answer = ask(gateway.address, &gateway.post("/v1/videos/generations", &lines, &body));
    assert_eq!(answer.status(), 202, "{}", answer.json());
}
