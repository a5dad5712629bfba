//! Somebody who answers HTTP requests as a test says, and keeps what has come.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::recorder::Recorded;

/// An answer: its status, further header lines that end with a line break each, and its body.
pub(crate) type Reply = (u16, String, String);

/// Answers every request by what has come of it and of those before. Lives as long as the process.
pub(crate) struct Responder {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Recorded>>>,
}

impl Recorded {
    /// The value of a header; empty without one.
    pub(crate) fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        found.next().map_or("", |(_, value)| value.trim())
    }

    /// The method and the path, with its query.
    pub(crate) fn target(&self) -> (&str, &str) {
        let mut words = self.head.split(' ');
        (words.next().unwrap_or_default(), words.next().unwrap_or_default())
    }

    /// A field of a body that is a form; empty without one.
    pub(crate) fn field(&self, name: &str) -> String {
        let pairs = url::form_urlencoded::parse(&self.body);
        let mut found = pairs.filter(|(found, _)| found == name);
        found.next().map_or_else(String::new, |(_, value)| value.into_owned())
    }
}

impl Responder {
    /// Answers with what `answer` makes of the number of requests that came before, and this one.
    pub(crate) fn start(
        answer: impl Fn(usize, &Recorded) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (requests, answer) = (Arc::new(Mutex::new(Vec::new())), Arc::new(answer));
        let log = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || {
                    // The gateway closing a connection ends it.
                    let _ended = serve(&stream, &log, answer.as_ref());
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

fn serve(
    stream: &TcpStream,
    log: &Mutex<Vec<Recorded>>,
    answer: &dyn Fn(usize, &Recorded) -> Reply,
) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if lines.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let mut request = Recorded { head, body: Vec::new() };
        request.body = vec![0; request.header("content-length").parse().unwrap_or(0)];
        lines.read_exact(&mut request.body)?;
        let before = {
            let mut log = log.lock().expect("no poison");
            log.push(request.clone());
            log.len() - 1
        };
        let (status, more, body) = answer(before, &request);
        write!(
            out,
            "HTTP/1.1 {status} Said\r\n{more}content-length: {}\r\n\r\n{body}",
            body.len()
        )?;
    }
}
