//! An upstream that takes its time over the calls of some customers and answers those of others at once.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// Bytes of an event of a flood.
const FLOOD_BYTES: usize = 8 * 1024;
/// Events of a flood that come at once: more than sockets and queues take of an answer that nobody reads.
const FLOOD_BURST: usize = 40;
/// The time between the events behind these: 32 KB/s, more than models write.
const FLOOD: Duration = Duration::from_millis(250);
/// Longer than any test runs.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// The answer to a call whose prompt holds [`slow`]'s text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Not a byte.
    Silent,
    /// A good head, and a little of the answer every 200 ms.
    Dribbling,
    /// Many large events at once, and then others without end.
    Flooding,
}

/// The answer to a count of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountAnswer {
    /// 429 with `retry-after: 60`: the limit of the counter, which is none of the messages'.
    Limited,
    /// 500.
    Failed,
    /// The connection is reset.
    Reset,
}

/// The upstream; it lives as long as the runtime.
pub(crate) struct Upstream {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

struct State {
    pace: Pace,
    /// The [`CountAnswer`] of now.
    counts: AtomicU8,
    count_calls: AtomicUsize,
    slow: AtomicUsize,
    slow_most: AtomicUsize,
    connections: AtomicUsize,
    connections_most: AtomicUsize,
    arrived: Mutex<HashSet<usize>>,
    arrivals: Notify,
}

/// The text that makes a call slow, with a number of its own.
pub(crate) fn slow(number: usize) -> String {
    format!("slow-{number}.")
}

impl Upstream {
    pub(crate) async fn start(pace: Pace) -> Self {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        // By default some hundred unread streams fill the memory that the kernel has for all of TCP.
        socket.set_send_buffer_size(64 * 1024).expect("a size");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let listener = socket.listen(4096).expect("it listens");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            pace,
            counts: AtomicU8::new(0),
            count_calls: AtomicUsize::default(),
            slow: AtomicUsize::default(),
            slow_most: AtomicUsize::default(),
            connections: AtomicUsize::default(),
            connections_most: AtomicUsize::default(),
            arrived: Mutex::default(),
            arrivals: Notify::new(),
        });
        tokio::spawn(accept(listener, Arc::clone(&state)));
        Self { address, state }
    }

    /// From now on counts of tokens are answered so.
    pub(crate) fn answer_counts(&self, answer: CountAnswer) {
        self.state.counts.store(answer as u8, Ordering::SeqCst);
    }

    /// The number of requests to count tokens.
    pub(crate) fn count_calls(&self) -> usize {
        self.state.count_calls.load(Ordering::SeqCst)
    }

    /// True once the slow call of this number has arrived.
    pub(crate) fn has(&self, number: usize) -> bool {
        self.state.arrived.lock().contains(&number)
    }

    /// Returns once the slow call of this number has arrived.
    pub(crate) async fn arrival(&self, number: usize) {
        loop {
            // Before the look at what has arrived: no arrival falls between the two.
            let next = self.state.arrivals.notified();
            if self.has(number) {
                return;
            }
            next.await;
        }
    }

    /// Slow calls that are under way.
    pub(crate) fn slow(&self) -> usize {
        self.state.slow.load(Ordering::SeqCst)
    }

    /// The most slow calls that were under way at one time.
    pub(crate) fn slow_most(&self) -> usize {
        self.state.slow_most.load(Ordering::SeqCst)
    }

    /// The most connections that were open at one time, unused ones among them.
    pub(crate) fn connections_most(&self) -> usize {
        self.state.connections_most.load(Ordering::SeqCst)
    }
}

/// One of a number that is counted, given back on drop.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize, most: &AtomicUsize) -> Self {
        most.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Descriptors of the test have run out: some will be closed.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let _connection = Counted::new(&state.connections, &state.connections_most);
            // The gateway closing a connection ends it.
            let _ended = serve(stream, &state).await;
        });
    }
}

async fn serve(mut stream: TcpStream, state: &State) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut read = Vec::new();
    while let Some((path, body)) = request(&mut stream, &mut read).await? {
        if path.contains("count_tokens") || path.contains(":countTokens") {
            state.count_calls.fetch_add(1, Ordering::SeqCst);
            match state.counts.load(Ordering::SeqCst) {
                0 => answer(&mut stream, "429 Limited\r\nretry-after: 60", LIMITED).await?,
                1 => answer(&mut stream, "500 Failed", LIMITED).await?,
                _ => return stream.set_zero_linger(),
            }
            continue;
        }
        let text = String::from_utf8_lossy(&body);
        let streams = text.contains("\"stream\":true") || path.contains("streamGenerate");
        let number =
            text.split_once("slow-").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
        if let Some(number) = number {
            state.arrived.lock().insert(number);
            state.arrivals.notify_waiters();
            let _slow = Counted::new(&state.slow, &state.slow_most);
            return take_time(&mut stream, state.pace, streams).await;
        }
        let (kind, body) = good(&path, streams);
        answer(&mut stream, &format!("200 OK\r\ncontent-type: {kind}"), &body).await?;
    }
    Ok(())
}

/// The path and the body of the next request; `None` at the end.
async fn request(
    stream: &mut TcpStream,
    read: &mut Vec<u8>,
) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut chunk = vec![0; 16 * 1024];
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
            let length = head.split_once("content-length:").map_or(0, |(_, rest)| {
                rest.lines().next().and_then(|line| line.trim().parse().ok()).unwrap_or(0)
            });
            if read.len() >= end + 4 + length {
                let path = String::from_utf8_lossy(&read[..end]);
                let path = path.split(' ').nth(1).unwrap_or_default().to_owned();
                let body = read[end + 4..end + 4 + length].to_vec();
                read.drain(..end + 4 + length);
                return Ok(Some((path, body)));
            }
        }
        match stream.read(&mut chunk).await? {
            0 => return Ok(None),
            count => read.extend_from_slice(&chunk[..count]),
        }
    }
}

async fn answer(stream: &mut TcpStream, head: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    let answer = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).await
}

/// Goes on until the gateway leaves.
async fn take_time(stream: &mut TcpStream, pace: Pace, streams: bool) -> std::io::Result<()> {
    let kind = if streams { "text/event-stream" } else { "application/json" };
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n");
    let (piece, between) = match (pace, streams) {
        (Pace::Silent, _) => (String::new(), FOR_EVER),
        (Pace::Dribbling, false) => (" ".to_owned(), Duration::from_millis(200)),
        (Pace::Dribbling, true) => (event("."), Duration::from_millis(200)),
        (Pace::Flooding, false) => (" ".repeat(FLOOD_BYTES), FLOOD),
        (Pace::Flooding, true) => (event(&"x".repeat(FLOOD_BYTES)), FLOOD),
    };
    if pace != Pace::Silent {
        stream.write_all(head.as_bytes()).await?;
    }
    if pace == Pace::Flooding {
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        stream.write_all(chunk.repeat(FLOOD_BURST).as_bytes()).await?;
    }
    let mut scratch = [0; 1024];
    loop {
        if !piece.is_empty() {
            let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
            stream.write_all(chunk.as_bytes()).await?;
        }
        match timeout(between, stream.read(&mut scratch)).await {
            Ok(Ok(1..)) | Err(_) => {}
            Ok(Ok(0) | Err(_)) => return Ok(()),
        }
    }
}

fn event(text: &str) -> String {
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
         \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

const LIMITED: &str =
    r#"{"type":"error","error":{"type":"rate_limit_error","message":"Too many counts."}}"#;

/// A short answer in the words of the path, and its media type.
fn good(path: &str, streams: bool) -> (&'static str, String) {
    const RESPONSE: &str = r#"{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"r","output":[{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"hi","annotations":[]}]}],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}"#;
    const MESSAGE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}"#;
    const CONTENT: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2},"modelVersion":"g"}"#;
    const CHAT: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
    const CHUNK: &str = r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
    const JSON: &str = "application/json";
    const EVENTS: &str = "text/event-stream";
    match (path.contains("/responses"), path.contains("/messages"), path.contains("/models/")) {
        (true, ..) if streams => {
            let created = RESPONSE.replace("\"completed\",\"model\"", "\"in_progress\",\"model\"");
            (
                EVENTS,
                format!(
                    "event: response.created\ndata: {{\"type\":\"response.created\",\"sequence_number\":0,\"response\":{created}}}\n\n\
                 event: response.completed\ndata: {{\"type\":\"response.completed\",\"sequence_number\":1,\"response\":{RESPONSE}}}\n\n"
                ),
            )
        }
        (true, ..) => (JSON, RESPONSE.to_owned()),
        (_, true, _) => (JSON, MESSAGE.to_owned()),
        (_, _, true) => (JSON, CONTENT.to_owned()),
        _ if streams => (EVENTS, format!("data: {CHUNK}\n\ndata: [DONE]\n\n")),
        _ => (JSON, CHAT.to_owned()),
    }
}
