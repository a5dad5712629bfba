//! Tools that load a gateway, and tools that attack one.

use std::time::{Duration, Instant};

use super::{GOOD, eventually, log, run, start_tls};
use crate::harness::tls::TestCertificate;
use crate::harness::{Gateway, Recorder, ask, let_pass};

#[test]
fn h2load_gets_every_answer() {
    const REQUESTS: usize = 1000;
    let recorder = Recorder::start();
    let certificate = TestCertificate::new();
    let gateway = start_tls(&certificate, recorder.address);
    let [plain, tls] = gateway.listeners[..] else { panic!("two listeners") };
    let body = gateway.path("body.json");
    std::fs::write(&body, GOOD).expect("written");
    let path = "/v1/chat/completions";
    let (over_tcp, over_tls) = (format!("http://{plain}{path}"), format!("https://{tls}{path}"));
    let cases: [(&[&str], &str); 3] =
        [(&["-p", "h2c"], &over_tcp), (&[], &over_tls), (&["--h1"], &over_tls)];
    let bearer = format!("Authorization: Bearer {}", gateway.key);
    let (count, body) = (REQUESTS.to_string(), body.display().to_string());
    for (flags, url) in cases {
        // HTTP/1.1 has one request at a time.
        let streams = if flags == ["--h1"] { "1" } else { "10" };
        let load = ["-n", &count, "-c", "8", "-m", streams, "-d", &body, "-H", &bearer];
        let json = ["-H", "Content-Type: application/json", url];
        let report = run("h2load", &[flags, &load, &json].concat());
        let all = format!("{REQUESTS} succeeded, 0 failed, 0 errored, 0 timeout");
        assert!(report.contains(&all), "{flags:?} {url}:\n{report}");
        assert!(report.contains(&format!("{REQUESTS} 2xx")), "{flags:?} {url}:\n{report}");
        let protocol = if flags == ["--h1"] { "http/1.1" } else { "h2" };
        assert!(report.contains(&format!("protocol: {protocol}")), "{url}:\n{report}");
    }
    assert_eq!(recorder.requests().len(), cases.len() * REQUESTS, "each reached the upstream");
    gateway.settled();
}

/// Runs slowhttptest with 100 connections for at most 25 s, and gives its last words.
fn slow(mode: &[&str], cookie: &str, url: &str) -> String {
    let always = ["-c", "100", "-r", "100", "-l", "25", "-p", "3", "-j", cookie, "-u", url];
    run("slowhttptest", &[mode, &always].concat())
}

/// Heads and bodies that come byte by byte, and answers that are read so: all are cut within their
/// bounds, and honest customers notice nothing.
#[test]
#[ignore = "a proof: six attackers keep both cores busy for half a minute"]
fn slowhttptest_harms_nobody() {
    let recorder = Recorder::start();
    let certificate = TestCertificate::new();
    let gateway = start_tls(&certificate, recorder.address);
    let [plain, tls] = gateway.listeners[..] else { panic!("two listeners") };
    list_many_models(&gateway);
    // Nobody attacks it: how long it takes says how busy the machine is.
    let other = Gateway::start(recorder.address);
    let at_rest = gateway.descriptors();
    // slowhttptest sends no header of ours but this one.
    let cookie = format!("a=b\r\nAuthorization: Bearer {}", gateway.key);
    let modes: [(&[&str], &str); 3] = [
        (&["-H", "-i", "1"], "/v1/models"),
        (&["-B", "-i", "1", "-s", "8192", "-f", "application/json"], "/v1/chat/completions"),
        (&["-X", "-w", "1", "-y", "32", "-n", "1", "-z", "5"], "/v1/models"),
    ];
    std::thread::scope(|scope| {
        let attacks = modes.iter().flat_map(|(mode, path)| {
            let urls = [format!("http://{plain}{path}"), format!("https://{tls}{path}")];
            let cookie = &cookie;
            urls.map(|url| (*mode, scope.spawn(move || slow(mode, cookie, &url))))
        });
        let attacks: Vec<_> = attacks.collect();
        let began = Instant::now();
        let (mut most, mut cut_after) = (0, None);
        while began.elapsed() < Duration::from_secs(24) {
            let answer = ask(plain, &gateway.chat_json(GOOD));
            assert_eq!(answer.status(), 200, "{answer:?}");
            let elsewhere = ask(other.address, &other.chat_json(GOOD)).took;
            let bound = elsewhere + Duration::from_secs(2);
            assert!(answer.took < bound, "took {:?} of at most {bound:?}", answer.took);
            let open = gateway.descriptors();
            most = most.max(open);
            if open < at_rest + 50 && most > at_rest + 250 {
                cut_after.get_or_insert(began.elapsed());
            }
            let_pass(Duration::from_millis(100), "the pace of honest calls");
        }
        let cut_after = cut_after.unwrap_or_else(|| panic!("{at_rest} to {most}: none was cut"));
        assert!(cut_after < Duration::from_secs(20), "the last was cut after {cut_after:?}");
        for (mode, attack) in attacks {
            let report = attack.join().expect("no panic");
            assert!(!report.contains("service available:   NO"), "{mode:?}: {report}");
            // Who reads slowly is not told that nobody sends any more.
            let ended = report.contains("No open connections left") || mode[0] == "-X";
            assert!(ended, "{mode:?}: {report}");
        }
    });
    gateway.settled();
}

/// Makes the list of models longer than what a customer takes who takes next to nothing.
fn list_many_models(gateway: &Gateway) {
    let path = gateway.path("models.yaml");
    let mut models = std::fs::read_to_string(&path).expect("the file");
    let claude = models.find("  claude:").expect("a model that ends there");
    let (_, chat) = models[..claude].split_once("  m:\n").expect("a model");
    let chat = chat.to_owned();
    for index in 0..500 {
        models.push_str(&format!("  model-with-a-long-name-{index}:\n{chat}"));
    }
    std::fs::write(&path, models).expect("written");
    gateway.signal("HUP");
    eventually("the reload", || log(gateway).contains("configuration reloaded"));
}
