//! HTTP/1.1 by hand: what is sent is exactly what a test says.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Bytes received over a connection.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Everything that was read.
    pub(crate) bytes: Vec<u8>,
    /// True if the other end closed the connection.
    pub(crate) is_closed: bool,
    /// How long it took.
    pub(crate) took: Duration,
}

impl Answer {
    /// The status of the first response that is not informational; 0 without one.
    pub(crate) fn status(&self) -> u16 {
        self.head().get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    /// The head of that response, without its empty line.
    pub(crate) fn head(&self) -> String {
        self.parts().0
    }

    /// Content after the head.
    pub(crate) fn body(&self) -> Vec<u8> {
        self.parts().1
    }

    /// The body, without its chunks' frames where it has them.
    pub(crate) fn content(&self) -> Vec<u8> {
        if self.header("transfer-encoding").is_none() {
            return self.body();
        }
        let (body, mut content) = (self.body(), Vec::new());
        let mut rest = body.as_slice();
        while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
            let size = std::str::from_utf8(&rest[..end]).expect("a size");
            let size = usize::from_str_radix(size, 16).expect("a size");
            content.extend_from_slice(&rest[end + 2..end + 2 + size]);
            rest = &rest[end + 2 + size + 2..];
        }
        content
    }

    /// The value of a header of that response.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.head().lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }

    /// The body as JSON; null if it is none.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body()).unwrap_or_default()
    }

    /// How many responses there are, informational ones not counted.
    pub(crate) fn responses(&self) -> usize {
        let text = String::from_utf8_lossy(&self.bytes);
        text.matches("HTTP/1.1 ").count() - text.matches("HTTP/1.1 1").count()
    }

    fn parts(&self) -> (String, Vec<u8>) {
        let mut rest = self.bytes.as_slice();
        loop {
            let Some(end) = rest.windows(4).position(|window| window == b"\r\n\r\n") else {
                return (String::new(), rest.to_vec());
            };
            let (head, body) = (&rest[..end], &rest[end + 4..]);
            if !head.starts_with(b"HTTP/1.1 1") {
                return (String::from_utf8_lossy(head).into_owned(), body.to_vec());
            }
            rest = body;
        }
    }

    /// True if the response says where it ends, and has come to that end.
    pub(crate) fn is_whole(&self) -> bool {
        let (head, body) = self.parts();
        if head.is_empty() {
            return false;
        }
        match self.header("content-length") {
            Some(length) => length.parse().is_ok_and(|length: usize| body.len() >= length),
            None => body.ends_with(b"0\r\n\r\n"),
        }
    }
}

/// Opens a connection whose reads give up after 5 s.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the gateway takes connections");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    stream.set_write_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    stream.set_nodelay(true).expect("no delay");
    stream
}

/// Sends `request` over a new connection and reads the response; then, for a moment, whether the
/// connection is closed or something else comes.
pub(crate) fn ask(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = connect(address);
    let socket = stream.try_clone().expect("a second handle");
    ask_over(&mut stream, &socket, request)
}

/// Sends `request` over a new connection, and returns once the response begins.
pub(crate) fn begin(address: SocketAddr, request: &[u8]) -> TcpStream {
    let mut stream = connect(address);
    stream.write_all(request).expect("sent");
    stream.peek(&mut [0; 1]).expect("the response begins");
    stream
}

/// The response to a request that was sent already.
pub(crate) fn rest(mut stream: TcpStream) -> Answer {
    let socket = stream.try_clone().expect("a second handle");
    ask_over(&mut stream, &socket, b"")
}

/// Reads a response until so many events of it are there.
pub(crate) fn read_events(stream: &mut impl Read, events: usize) -> Vec<u8> {
    let mut answer = Answer::default();
    while answer.bytes.windows(6).filter(|window| window == b"data: ").count() < events {
        let has_more = read_more(stream, &mut answer) && !answer.is_closed;
        assert!(has_more, "it ended: {}", String::from_utf8_lossy(&answer.bytes));
    }
    answer.bytes
}

/// The same over a connection that is open already, of which `socket` is the end.
pub(crate) fn ask_over(
    stream: &mut (impl Read + Write),
    socket: &TcpStream,
    request: &[u8],
) -> Answer {
    let begun = Instant::now();
    // A refusal may come, and the connection close, before all is sent.
    let _sent = stream.write_all(request).and_then(|()| stream.flush());
    let mut answer = Answer::default();
    while !answer.is_closed && !answer.is_whole() && read_more(stream, &mut answer) {}
    answer.took = begun.elapsed();
    let closes = answer.header("connection").is_some_and(|value| value == "close");
    let moment = Duration::from_millis(if closes { 1000 } else { 30 });
    socket.set_read_timeout(Some(moment)).expect("a timeout");
    while !answer.is_closed && read_more(stream, &mut answer) {}
    answer
}

/// True if a read brought anything, the end included.
fn read_more(stream: &mut impl Read, answer: &mut Answer) -> bool {
    let mut chunk = [0; 16 * 1024];
    match stream.read(&mut chunk) {
        Ok(0) => answer.is_closed = true,
        Ok(count) => answer.bytes.extend_from_slice(&chunk[..count]),
        // The second is the end of TLS without a word.
        Err(error)
            if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof) =>
        {
            answer.is_closed = true;
        }
        Err(_) => return false,
    }
    true
}
