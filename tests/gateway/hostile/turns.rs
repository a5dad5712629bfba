//! Customers who keep the gateway busy with frames that ask for nothing: reading them is done a little at
//! a time, in turn with everybody else's requests.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::http2;
use crate::harness::{Gateway, Recorder, ask, connect, let_pass};

const FLOODS: usize = 12;

/// Sends the beginning once and the rest again and again over many connections, and says how long an
/// honest request took meanwhile: the medians of this gateway and of one that nobody floods, which shows
/// how busy the machine is.
fn medians_under(gateway: &Gateway, other: &Gateway, begin: &[u8], again: &[u8]) -> [Duration; 2] {
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
        let_pass(Duration::from_millis(500), "the attack comes to its full force");
        let began = Instant::now();
        let mut took = [Vec::new(), Vec::new()];
        while began.elapsed() < Duration::from_secs(3) || took[0].is_empty() {
            for (gateway, took) in [gateway, other].into_iter().zip(&mut took) {
                let answer = ask(gateway.address, &gateway.get("/v1/models"));
                assert_eq!(answer.status(), 200, "{answer:?}");
                took.push(answer.took);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        took.map(|mut took| {
            took.sort_unstable();
            took[took.len() / 2]
        })
    })
}

#[test]
fn floods_of_frames_that_ask_for_nothing_delay_nobody() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let other = Gateway::start(recorder.address);
    let [preface, pings, settings] = http2::idle_frames(2_000);
    for (what, again) in [("PING", pings), ("SETTINGS", settings)] {
        let [median, elsewhere] = medians_under(&gateway, &other, &preface, &again);
        println!("{what}: {median:?}, and {elsewhere:?} at a gateway without a flood");
        // Without turns it is 0.3 s to a second longer, as the machine is.
        let most = elsewhere + Duration::from_millis(250);
        assert!(median < most, "{what}: {median:?} of at most {most:?}");
    }
}
