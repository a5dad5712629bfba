//! A page of another origin in a real browser. Needs Chromium, which `bash .ci/install` installs:
//! `cargo test --test proofs -- --ignored browser::`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use crate::harness::{Demo, tool};

/// Serves this page to everyone who asks.
fn serve(page: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut request = [0; 8192];
            // A browser opens connections that it does not use.
            if stream.read(&mut request).is_ok_and(|bytes| bytes > 0) {
                let head =
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n";
                drop(stream.write_all(format!("{head}{page}").as_bytes()));
            }
        }
    });
    address
}

#[test]
#[ignore = "needs Chromium: bash .ci/install"]
fn a_page_of_another_origin_calls_and_reads_the_answer() {
    let demo = Demo::start();
    let script = r#"
        fetch(BASE + "/v1/chat/completions", {
            method: "POST",
            headers: {"authorization": "Bearer " + KEY, "content-type": "application/json"},
            body: JSON.stringify({model: "gpt-4o-mini", messages: [{role: "user", content: "hi"}]}),
        }).then(async (answer) => {
            const said = (await answer.json()).choices[0].message.content;
            document.body.textContent = `read ${answer.headers.get("x-request-id")}: ${said}`;
        }).catch((error) => { document.body.textContent = `failed: ${error}`; });
    "#;
    let page = format!(
        "<!doctype html><body>waiting<script>const BASE = {:?}, KEY = {:?};{script}</script>",
        demo.base_url, demo.api_key
    );
    let profile = tempfile::tempdir().expect("a directory");
    let output = tool("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        // Nothing but this machine is to be called.
        .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("http://{}/", serve(page)))
        .output()
        .expect("chromium runs");
    let dom = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(dom.contains("read req_"), "{dom}\n{errors}");
    assert!(dom.contains("Simulated upstreams answer"), "{dom}");
}
