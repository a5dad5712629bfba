//! Accounts without money that keep WebSockets open and idle: what these keep for nothing is not missing when
//! others send bodies, and the process takes no more memory than its bound says.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::Message;
use tungstenite::protocol::frame::coding::CloseCode;

use crate::harness::{Gateway, ask, eventually, simulator};
use crate::websocket::Socket;

const MIB: usize = 1024 * 1024;
/// `body_memory_max` of the gateways here.
const BODIES_MAX: usize = 64 * MIB;
/// The largest message.
const LARGE: usize = 4 * MIB - 1024;
/// The largest that is remembered: an eighth of an account's share, which is a quarter of 64 MiB.
const REMEMBERED: usize = 2 * MIB - 1024;
const SOCKETS: usize = 89;
/// Memory that a gateway may use above the limit for bodies: sockets, tasks, connection buffers, allocator
/// pages. Bytes.
const ALLOWANCE: u64 = 48 << 20;

const BODY_BYTES: &str = "tollgate_request_body_bytes";
const EVICTED: &str = "tollgate_websockets_evicted_total";
const IN_FLIGHT: &str = "tollgate_requests_in_flight";
const OPEN: &str = "tollgate_websockets";

/// A gateway whose model takes a body of 1 MB for some cents.
fn gateway(sim: &tollgate::sim::Sim) -> Gateway {
    let upstreams = format!("  o: {{ protocol: openai, base_url: 'http://{}/v1' }}\n", sim.addr());
    let models = "models:
  m:
    operations: [chat, responses]
    targets: [{ upstream: o }]
    prices: { input_per_1m_tokens: 0.01, output_per_1m_tokens: 0.01 }
    limits: { context_tokens_max: 8000000, output_tokens_max: 1000 }
    reasoning: false
";
    let limits =
        "  body_max: 4MiB\n  body_timeout: 20s\n  read_timeout: 20s\n  write_timeout: 20s\n";
    Gateway::limited(limits, &upstreams, models)
}

/// A WebSocket that has sent `message`, and read the last event of its answer or how it was closed.
struct Idle {
    socket: Socket,
    answer: Result<Value, Option<CloseCode>>,
}

/// Keys of four accounts that have `amount`, or nothing.
fn four_accounts(gateway: &Gateway, amount: Option<&str>) -> Vec<String> {
    (0..4).map(|_| gateway.customer("idle", amount)).collect()
}

/// Keeps 89 WebSockets open over these keys, each of which has sent `message`.
fn flood(gateway: &Gateway, keys: &[String], message: &Value) -> Vec<Idle> {
    let text = message.to_string();
    let open = |number: usize| {
        let mut socket = Socket::open(gateway, &keys[number % keys.len()], &[]);
        socket.0.send(Message::text(text.clone())).expect("a message leaves");
        let answer = socket.last_event();
        Idle { socket, answer }
    };
    (0..SOCKETS).map(open).collect()
}

/// The slowest of ten calls with a body of 1 MB over an account with money, all of which are served.
fn slowest_of_another(gateway: &Gateway, what: &str) -> Duration {
    let text = "x".repeat(MIB);
    let body = json!({"model": "m", "messages": [{"role": "user", "content": text}]});
    let request = gateway.chat_json(body.to_string());
    let mut slowest = Duration::ZERO;
    for number in 0..10 {
        let answer = ask(gateway.address, &request);
        assert_eq!(answer.status(), 200, "{what}, call {number}: {answer:?}");
        slowest = slowest.max(answer.took);
    }
    println!("{what}: the slowest call of the other account took {slowest:?}");
    slowest
}

fn assert_resident(gateway: &Gateway, before: u64, bodies: usize, what: &str) {
    let (now, peak) = (gateway.rss_bytes(), gateway.rss_bytes_max());
    let of = |bytes: u64| bytes.saturating_sub(before) / (1 << 20);
    println!("{what}: {} MiB more than before are resident, {} at most", of(now), of(peak));
    let bound = before + bodies as u64 + ALLOWANCE;
    assert!(now <= bound, "{what}: {now} of {bound} bytes");
    // Buffers that nobody uses take a quarter more for a second.
    let bound = before + (BODIES_MAX + BODIES_MAX / 4) as u64 + ALLOWANCE;
    assert!(peak <= bound, "{what}: {peak} of {bound} bytes at the peak");
}

fn warm_up(text: &str) -> Value {
    json!({"type": "response.create", "model": "m", "store": false, "generate": false,
        "input": text})
}

/// Four accounts that have `amount` keep as much as they may: others' bodies are served all the same, and
/// one idle connection of another account with money stays open. So many MiB are kept at most.
fn warm_ups_give_way(what: &str, amount: Option<&str>, kept_mib: std::ops::RangeInclusive<f64>) {
    let sim = simulator(&[]);
    let gateway = gateway(&sim);
    slowest_of_another(&gateway, "before");
    let mut own = Socket::open(&gateway, &gateway.key, &[]);
    own.0.send(Message::text(warm_up(&"y".repeat(MIB)).to_string())).expect("a message leaves");
    let id = own.last_event().expect("a warm-up")["response"]["id"].clone();
    let before = gateway.rss_bytes();

    let keys = four_accounts(&gateway, amount);
    let sockets = flood(&gateway, &keys, &warm_up(&"x".repeat(REMEMBERED)));
    let refused = sockets.iter().find(|idle| idle.answer.is_err());
    assert!(refused.is_none(), "{what}: {:?}", refused.map(|idle| &idle.answer));
    let kept = gateway.metric(BODY_BYTES) / MIB as f64;
    assert!(kept_mib.contains(&kept), "{what}: {kept} MiB of {kept_mib:?}");
    assert_resident(&gateway, before, BODIES_MAX, what);
    let evicted = gateway.metric(EVICTED);
    let slowest = slowest_of_another(&gateway, what);
    assert!(slowest < Duration::from_secs(2), "{what}: {slowest:?}");
    println!("{what}: {} more were evicted for it", gateway.metric(EVICTED) - evicted);
    assert_resident(&gateway, before, BODIES_MAX, what);

    // Who has given way is closed with the code after which clients come again.
    let evicted = gateway.metric(EVICTED);
    let closed = sockets.into_iter().fold(0.0, |closed, mut idle| {
        idle.socket.set_timeout(Duration::from_millis(50));
        let is_away = idle.socket.close_code() == Some(CloseCode::Away);
        closed + f64::from(u8::from(is_away))
    });
    assert_eq!(closed, evicted, "{what}: each that was evicted, and no other");
    let go_on = json!({"type": "response.create", "model": "m", "store": false,
        "previous_response_id": id, "input": "and now?"});
    own.0.send(Message::text(go_on.to_string())).expect("a message leaves");
    let done = own.last_event().expect("a turn");
    assert_eq!(done["type"], "response.completed", "{what}: it was not closed: {done}");
}

#[test]
fn warm_ups_of_accounts_without_money_leave_others_a_half() {
    warm_ups_give_way("warm-ups for nothing", None, 20.0..=34.0);
}

#[test]
fn warm_ups_of_accounts_with_a_cent_give_way_to_others_bodies() {
    warm_ups_give_way("warm-ups with a cent", Some("0.01"), 50.0..=64.0);
}

#[test]
fn refused_messages_leave_nothing_behind() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim);
    slowest_of_another(&gateway, "before");
    let before = gateway.rss_bytes();
    let keys = four_accounts(&gateway, None);
    let text = "x".repeat(LARGE);
    let unknown = json!({"type": "response.steer", "input": text});
    // It passes all checks but that of the money.
    let unpaid = json!({"type": "response.create", "model": "m", "store": false, "input": text});
    for (what, message, status) in [("unknown", &unknown, 400), ("unpaid", &unpaid, 402)] {
        let sockets = flood(&gateway, &keys, message);
        for idle in &sockets {
            let answer = idle.answer.as_ref().expect("a refusal");
            assert_eq!(answer["status"], status, "{what}: {answer}");
        }
        eventually("nothing is counted any more", || gateway.metric(BODY_BYTES) == 0.0);
        assert_eq!(gateway.metric(OPEN), 89.0, "all are still open");
        assert_eq!(gateway.metric(IN_FLIGHT), 0.0, "and nothing is under way");
        eventually("nothing is resident any more", || gateway.rss_bytes() < before + ALLOWANCE);
        assert_resident(&gateway, before, 0, what);
        let slowest = slowest_of_another(&gateway, what);
        assert!(slowest < Duration::from_secs(2), "{slowest:?}");
        drop(sockets);
        eventually("they are gone", || gateway.metric(OPEN) == 0.0);
    }
    assert_eq!(gateway.metric(EVICTED), 0.0, "there was room for all");
}

/// A message that never becomes whole counts with the buffer that it is read into, and has its time.
#[test]
fn halves_of_messages_count_as_what_they_take() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim);
    slowest_of_another(&gateway, "before");
    let before = gateway.rss_bytes();
    let key = gateway.stranger();
    let half = crate::websocket::frame(0x01, true, &vec![b' '; MIB]);
    let sockets: Vec<_> = (0..40)
        .map(|_| {
            let mut socket = Socket::open(&gateway, &key, &[]);
            let sent = std::io::Write::write_all(socket.0.get_mut(), &half);
            assert!(sent.is_ok() || sent.is_err_and(|error| error.kind() != ErrorKind::WouldBlock));
            socket
        })
        .collect();
    let begun = Instant::now();
    // A quarter of 64 MiB is the account's share, and a fragment is there twice.
    eventually("the share is full", || gateway.metric(BODY_BYTES) > 14.0 * MIB as f64);
    assert!(gateway.metric(BODY_BYTES) <= 16.0 * MIB as f64);
    assert_resident(&gateway, before, 16 * MIB, "halves");
    slowest_of_another(&gateway, "halves");
    assert!(begun.elapsed() < Duration::from_secs(15), "before their time is over");
    drop(sockets);
    eventually("all is given back", || gateway.metric(BODY_BYTES) == 0.0);
}
