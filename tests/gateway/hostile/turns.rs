//! Customers who keep the gateway busy with frames that ask for nothing: reading them is done a little at
//! a time, in turn with everybody else's requests.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::http2;
use crate::harness::{Gateway, Recorder, ask, connect};

const FLOODS: usize = 12;

/// Sends the beginning once and the rest again and again over many connections, and says how long an
/// honest request took meanwhile, mostly.
fn median_under(gateway: &Gateway, begin: &[u8], again: &[u8]) -> Duration {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..FLOODS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let mut stream = connect(gateway.address);
                    let timeout = Some(Duration::from_millis(500));
                    stream.set_write_timeout(timeout).expect("a timeout");
                    // It may be cut, and then comes again.
                    let mut sent = stream.write_all(begin);
                    while sent.is_ok() && !is_over.load(Ordering::Relaxed) {
                        sent = stream.write_all(again);
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        let began = Instant::now();
        let mut took = Vec::new();
        while began.elapsed() < Duration::from_secs(3) || took.is_empty() {
            let answer = ask(gateway.address, &gateway.get("/v1/models"));
            assert_eq!(answer.status(), 200, "{answer:?}");
            took.push(answer.took);
        }
        is_over.store(true, Ordering::Relaxed);
        took.sort_unstable();
        took[took.len() / 2]
    })
}

#[test]
fn floods_of_frames_that_ask_for_nothing_delay_nobody() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let [preface, pings, settings] = http2::idle_frames(2_000);
    for (what, again) in [("PING", pings), ("SETTINGS", settings)] {
        let median = median_under(&gateway, &preface, &again);
        println!("{what}: {median:?}");
        // Without turns it is 0.3 s to a second, as the machine is.
        assert!(median < Duration::from_millis(250), "{what}: {median:?}");
    }
}
