//! A gateway over simulated upstreams, good and bad ones, with customers of every kind.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate::sim::{Sim, SimOptions};

use crate::harness::{Gateway, ask};

/// Customers at a time.
const CUSTOMERS: usize = 4;
/// The pause of a customer between two calls: some 30 calls a second of each.
const PAUSE: Duration = Duration::from_millis(30);
/// The load ends by itself after this time.
const LASTS: Duration = Duration::from_secs(90);

const MODELS: &str = "
  broken:
    operations: [chat]
    targets: [{ upstream: broken }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 10 }
    limits: { context_tokens_max: 100000, output_tokens_max: 1000 }
  cut:
    operations: [chat]
    targets: [{ upstream: cut }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 10 }
    limits: { context_tokens_max: 100000, output_tokens_max: 1000 }
  silent:
    operations: [chat]
    targets: [{ upstream: silent }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 10 }
    limits: { context_tokens_max: 100000, output_tokens_max: 1000 }
  gif-video:
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
        let sim = Sim::start(SimOptions::default()).expect("the simulator starts");
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
            "tasks: { poll_min: 50ms, poll_max: 100ms, webhook_hosts: [127.0.0.1] }\n".to_owned(),
        ]
        .concat();
        let models = format!("models:\n  good:{}{MODELS}", {
            let broken = MODELS.split_once("broken:").expect("the first model").1;
            let of_broken = broken.split_once("\n  cut:").expect("the second model").0;
            of_broken.replace("upstream: broken", "upstream: good")
        });
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

    /// Whether every customer still gets what it expects.
    pub(crate) fn goes_on(&self) -> bool {
        self.customers.iter().all(|customer| !customer.is_finished())
    }

    /// Ends the load.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for customer in self.customers {
            customer.join().expect("a customer got what it expected");
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
            0 | 4 => (chat("good", true), &[200]),
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
