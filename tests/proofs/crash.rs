//! kill -9 under load: what was acknowledged is there, and the books balance.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::child::kill_after;
use crate::harness::{Admin, Demo, let_pass_async, rounds};
use serde_json::{Value, json};

/// Kills in one run.
const ROUNDS: u64 = 50;
/// Customers that call at the same time.
const CALLERS: usize = 8;

/// Charges by request.
type Charges = BTreeMap<String, String>;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "kills the gateway many times"]
async fn acknowledged_writes_survive_kill_9() {
    let rounds = rounds(ROUNDS);
    let seed = fastrand::u64(..);
    println!("seed {seed}, {rounds} rounds");
    let mut random = fastrand::Rng::with_seed(seed);
    let data = tempfile::tempdir().expect("a directory");
    let account = {
        let demo = Demo::on(data.path());
        Admin::of(&demo).customer("1000.00").await.account
    };
    let mut acknowledged = Charges::new();
    for round in 0..rounds {
        let mut demo = Demo::on(data.path());
        let admin = Admin::of(&demo);
        let granted = admin.settled(&account).await.granted;
        let expected = 1_000_000_000_000 + i64::try_from(round).expect("few") * 10_000_000;
        assert_eq!(granted, expected, "round {round}: a grant was lost");
        let key = admin.post(&format!("/accounts/{account}/keys"), json!({"name": "round"})).await;
        let stop = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                tokio::spawn(call_until(stop.clone(), demo.base_url.clone(), key["key"].clone()))
            })
            .collect();
        let grant = json!({"amount": "0.01", "id": format!("round-{round}")});
        admin.post(&format!("/accounts/{account}/grants"), grant).await;
        let_pass_async(Duration::from_millis(random.u64(20..150)), "a random moment").await;
        acknowledged.extend(charges(&admin.newest_settlements(&account).await));
        kill_after(&mut demo.process.0, Duration::from_millis(random.u64(0..30)));
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            caller.await.expect("no panic");
        }
        if round % 10 == 0 {
            // Recovery itself may be killed too: the next start must not mind.
            drop(Demo::on(data.path()));
        }
        verify(data.path(), round);
    }
    let demo = Demo::on(data.path());
    let kept = charges(&Admin::of(&demo).settlements(&account).await);
    assert!(
        acknowledged.len() > usize::try_from(rounds).expect("few") * 20,
        "too little was acknowledged to tell: {}",
        acknowledged.len()
    );
    for (request, charge) in &acknowledged {
        assert_eq!(kept.get(request), Some(charge), "the settlement of {request} was lost");
    }
}

/// `tollgate ledger verify`: the chain, every record, and I1 to I7.
fn verify(data: &std::path::Path, round: u64) {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["ledger", "verify", "--data"])
        .arg(data)
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "round {round}: {text}{errors}");
    assert!(text.contains("books add up to zero"), "round {round}: {text}");
}

async fn call_until(stop: Arc<AtomicBool>, base_url: String, key: Value) {
    let http = crate::harness::http();
    let key = key.as_str().expect("a key");
    for stream in [false, true].into_iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let body = json!({"model": "gpt-4o-mini", "max_tokens": 20, "stream": stream,
            "messages": [{"role": "user", "content": "hi"}]});
        let call =
            http.post(format!("{base_url}/v1/chat/completions")).bearer_auth(key).json(&body);
        match call.send().await {
            Ok(answer) => drop(answer.bytes().await),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// The charges of settlements; no request may have two.
fn charges(settlements: &[Value]) -> Charges {
    let mut found = Charges::new();
    for entry in settlements {
        let request = entry["call"]["request_id"].as_str().expect("a request").to_owned();
        let charge = entry["charged"].as_str().expect("an amount").to_owned();
        let before = found.insert(request, charge);
        assert_eq!(before, None, "a request was charged twice: {entry}");
    }
    found
}
