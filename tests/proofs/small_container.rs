//! The gateway where the kernel kills what takes too much memory.

use std::fs;

use crate::harness::container::Container;
use crate::harness::{Gateway, ask, simulator};

const GOOD: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

/// The kernel kills a process that passes its group's limit. What bodies may take follows the limit.
#[test]
#[ignore = "needs root, and control groups that limit memory"]
fn a_small_container_is_not_killed_by_large_bodies() {
    const MIB: usize = 1 << 20;
    let sim = simulator(&["delay-ms=1500"]);
    let mut gateway = Gateway::start(sim.addr());
    gateway.grant("100000.00", "more");
    let path = gateway.path("routes.yaml");
    let text = fs::read_to_string(&path).expect("the file");
    let text = text.replace("  body_max: 1MiB\n", "").replace("  body_memory_max: 64MiB\n", "");
    fs::write(&path, text.replace("timeout: 2s", "timeout: 20s")).expect("written");
    let container = Container::with_memory(150 * MIB);
    gateway.restart_in(&container.path);
    let mut served = 0;
    for size in [20 * MIB, 17 * MIB, 9 * MIB] {
        let url = format!("data:image/png;base64,{}", "x".repeat(size));
        let picture = format!(r#"[{{"type":"image_url","image_url":{{"url":"{url}"}}}}]"#);
        let large = gateway.chat_json(GOOD.replace("\"hi\"", &picture));
        for _ in 0..3 {
            let statuses: Vec<u16> = std::thread::scope(|scope| {
                let ask = || ask(gateway.address, &large).status();
                let caller: Vec<_> = (0..7).map(|_| scope.spawn(ask)).collect();
                caller.into_iter().map(|caller| caller.join().expect("no panic")).collect()
            });
            let existing = |status: &u16| matches!(status, 200 | 413 | 429 | 503);
            assert!(gateway.is_running(), "the kernel has killed it: {size} bytes, {statuses:?}");
            assert!(statuses.iter().all(existing), "{size} bytes: {statuses:?}");
            served += statuses.iter().filter(|status| **status == 200).count();
        }
    }
    assert!(served >= 3, "bodies that fit are served: {served}");
    assert_eq!(ask(gateway.address, &gateway.chat_json(GOOD)).status(), 200);
    gateway.kill();
}
