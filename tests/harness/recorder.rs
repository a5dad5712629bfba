//! An upstream that answers every chat call alike, and keeps the heads and bodies that reached it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// The head, line ends included.
    pub(crate) head: String,
    /// The body.
    pub(crate) body: Vec<u8>,
}

/// A recording upstream. Lives as long as the process.
pub(crate) struct Recorder {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Recorded>>>,
}

impl Recorder {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let log = Arc::clone(&log);
                std::thread::spawn(move || {
                    // The gateway closing a connection ends it.
                    let _ended = serve(stream, &log);
                });
            }
        });
        Self { address, requests }
    }

    /// Requests that have arrived so far.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.requests.lock().expect("no poison").clone()
    }
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Recorded>>) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if lines.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let length = head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .map_or(0, |(_, value)| value.trim().parse().expect("a length"));
        let mut body = vec![0; length];
        lines.read_exact(&mut body)?;
        let is_stream = String::from_utf8_lossy(&body).contains("\"stream\":true");
        log.lock().expect("no poison").push(Recorded { head, body });
        if is_stream {
            return stream_without_end(&mut out);
        }
        let answer = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}"#;
        write!(
            out,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
            answer.len()
        )?;
    }
}

/// Events as fast as they are taken.
fn stream_without_end(out: &mut TcpStream) -> std::io::Result<()> {
    out.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    let text = "x".repeat(16 * 1024);
    let event = format!(
        r#"data: {{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":null}}]}}"#
    );
    let chunk = format!("{:x}\r\n{event}\n\n\r\n", event.len() + 2);
    loop {
        out.write_all(chunk.as_bytes())?;
    }
}
