//! An upstream that does with each connection what a test says, also what no HTTP server should do.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::recorder::Recorded;

/// The upstream's reaction to a request.
pub(crate) enum Act {
    /// Reads it, and answers with these bytes.
    Answer(Vec<u8>),
    /// Reads it, and answers with pieces, so long after each other.
    Pieces(Vec<Vec<u8>>, Duration),
    /// Reads none of it and closes, which the kernel makes a reset.
    CloseUnread,
    /// Reads all of it and closes in order.
    CloseRead,
    /// Reads all but its last byte, waits until the kernel has acknowledged it, and closes, which the
    /// kernel makes a reset.
    ResetAcknowledged,
}

/// An upstream that answers each request with an event stream of these pieces, each so long after the one
/// before. It lives as long as the process.
pub(crate) fn paced_stream(pieces: Vec<(Duration, String)>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let pieces = pieces.clone();
            std::thread::spawn(move || {
                // A connection without a request is a probe of the gateway's.
                if !stream.read(&mut [0; 64 * 1024]).is_ok_and(|bytes| bytes > 0) {
                    return;
                }
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
                // The gateway closing the connection ends it.
                let mut sent = stream.write_all(head.as_bytes());
                for (pause, piece) in pieces {
                    std::thread::sleep(pause);
                    sent = sent.and_then(|()| stream.write_all(piece.as_bytes()));
                }
            });
        }
    });
    address
}

/// Maps the numbers of connection and request, both from 0, and the request to the upstream's reaction.
type Script = dyn Fn(usize, usize, &str) -> Act + Send + Sync;

/// Lives as long as the process.
pub(crate) struct Scripted {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Recorded>>>,
    connections: Arc<AtomicUsize>,
}

impl Scripted {
    /// Does what `script` makes of the numbers of the connection and of the request on it, and of the first
    /// bytes of the request. A connection without a request for `idle` is closed.
    pub(crate) fn start(
        idle: Option<Duration>,
        script: impl Fn(usize, usize, &str) -> Act + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (requests, connections) = (Arc::default(), Arc::<AtomicUsize>::default());
        let (log, count) = (Arc::clone(&requests), Arc::clone(&connections));
        let script: Arc<Script> = Arc::new(script);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let (log, script) = (Arc::clone(&log), Arc::clone(&script));
                std::thread::spawn(move || {
                    // The gateway closing a connection ends it.
                    let _ended =
                        serve(&stream, idle, &log, |request, begun| script(number, request, begun));
                });
            }
        });
        Self { address, requests, connections }
    }

    /// The requests that were read.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.requests.lock().expect("no poison").clone()
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(
    stream: &TcpStream,
    idle: Option<Duration>,
    log: &Mutex<Vec<Recorded>>,
    script: impl Fn(usize, &str) -> Act,
) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    out.set_nodelay(true)?;
    for number in 0.. {
        stream.set_read_timeout(idle)?;
        let mut begun = [0; 256];
        let count = stream.peek(&mut begun)?;
        if count == 0 {
            return Ok(());
        }
        stream.set_read_timeout(None)?;
        let act = script(number, &String::from_utf8_lossy(&begun[..count]));
        let left = match act {
            Act::CloseUnread => return Ok(()),
            Act::ResetAcknowledged => 1,
            _ => 0,
        };
        let request = read(stream, left)?;
        log.lock().expect("no poison").push(request);
        match act {
            Act::Answer(answer) => out.write_all(&answer)?,
            Act::Pieces(pieces, between) => {
                for piece in pieces {
                    out.write_all(&piece)?;
                    std::thread::sleep(between);
                }
            }
            Act::ResetAcknowledged => {
                // No call says that the kernel has acknowledged the bytes.
                std::thread::sleep(Duration::from_millis(300));
                return Ok(());
            }
            Act::CloseUnread | Act::CloseRead => return Ok(()),
        }
    }
    Ok(())
}

/// Reads a request but for its last `left` bytes.
fn read(stream: &TcpStream, left: usize) -> std::io::Result<Recorded> {
    // Without room for more, nothing is taken of what is left.
    let mut lines = BufReader::with_capacity(1, stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let mut request = Recorded { head, body: Vec::new() };
    let length: usize = request.header("content-length").parse().unwrap_or(0);
    request.body = vec![0; length.saturating_sub(left)];
    lines.read_exact(&mut request.body)?;
    Ok(request)
}
