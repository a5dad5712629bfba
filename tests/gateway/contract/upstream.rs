//! An upstream that answers what a test says, byte for byte.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A request that it got.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamRequest {
    pub(crate) line: String,
    /// When its last byte came.
    pub(crate) at: Instant,
}

impl UpstreamRequest {
    /// True for a submit, false for a poll.
    pub(crate) fn is_post(&self) -> bool {
        self.line.starts_with("POST ")
    }
}

pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<UpstreamRequest>>>,
}

impl Upstream {
    /// Starts one that answers each request with these bytes and closes the connection.
    pub(crate) fn start(
        answer: impl Fn(&UpstreamRequest) -> String + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (Arc::clone(&requests), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let Some(request) = read(&stream) else { return };
                    log.lock().expect("no poison").push(request.clone());
                    // The gateway may be gone by now.
                    drop((&stream).write_all(answer(&request).as_bytes()));
                });
            }
        });
        Self { address, requests }
    }

    /// Submits that the upstream has received.
    pub(crate) fn posts(&self) -> Vec<UpstreamRequest> {
        let requests = self.requests.lock().expect("no poison");
        requests.iter().filter(|request| request.is_post()).cloned().collect()
    }

    /// How often it was asked how tasks are, and when.
    pub(crate) fn looks(&self) -> Vec<Instant> {
        let requests = self.requests.lock().expect("no poison");
        requests.iter().filter(|request| !request.is_post()).map(|request| request.at).collect()
    }
}

fn read(stream: &TcpStream) -> Option<UpstreamRequest> {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let mut length = 0;
    loop {
        let mut header = String::new();
        if lines.read_line(&mut header).ok()? == 0 || header == "\r\n" {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body).ok()?;
    Some(UpstreamRequest { line: line.trim().to_owned(), at: Instant::now() })
}

/// An answer with this status, these header lines and this body.
pub(crate) fn answer(status: u16, lines: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n{lines}\r\n{body}",
        body.len()
    )
}

/// The same, of JSON.
pub(crate) fn json(status: u16, body: &str) -> String {
    answer(status, "Content-Type: application/json\r\n", body)
}
