//! A forward proxy that is asked with `CONNECT`, and what it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A proxy's reaction to requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProxyRule {
    /// It connects to the address that it is asked for.
    Open,
    /// It connects everybody to this address, whatever they ask for.
    LeadsTo(SocketAddr),
    /// It connects those who send this value of `Proxy-Authorization`.
    Wants(&'static str),
    /// It answers with this status.
    Refuses(u16),
    /// It says nothing.
    Silent,
}

/// A forward proxy on a free port. Lives as long as the process.
pub(crate) struct ForwardProxy {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl ForwardProxy {
    /// One that listens.
    pub(crate) fn start(rule: ProxyRule) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let log = Arc::clone(&log);
                std::thread::spawn(move || {
                    // Either side may end it.
                    let _ended = serve(&stream, rule, &log);
                });
            }
        });
        Self { address, heads }
    }

    /// Where it was asked to connect to, so far.
    pub(crate) fn targets(&self) -> Vec<String> {
        let heads = self.heads.lock().expect("no poison");
        let target = |head: &String| head.split(' ').nth(1).unwrap_or_default().to_owned();
        heads.iter().map(target).collect()
    }
}

fn serve(stream: &TcpStream, rule: ProxyRule, log: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    log.lock().expect("no poison").push(head.clone());
    let request = head.split(' ').nth(1).unwrap_or_default();
    let expected = format!(
        "Proxy-Authorization: {}\r\n",
        match rule {
            ProxyRule::Wants(value) => value,
            _ => "",
        }
    );
    let target = match rule {
        ProxyRule::Refuses(status) => return write!(out, "HTTP/1.1 {status} No\r\n\r\n"),
        ProxyRule::Silent => {
            lines.read_to_end(&mut Vec::new())?;
            return Ok(());
        }
        ProxyRule::Wants(_) if !head.contains(&expected) => {
            return write!(out, "HTTP/1.1 407 Who are you\r\n\r\n");
        }
        ProxyRule::Wants(_) | ProxyRule::Open => TcpStream::connect(request)?,
        ProxyRule::LeadsTo(address) => TcpStream::connect(address)?,
    };
    write!(out, "HTTP/1.1 200 Connected\r\n\r\n")?;
    let (mut there, mut back) = (target.try_clone()?, target);
    let mut from = stream.try_clone()?;
    std::thread::spawn(move || {
        let _ended = std::io::copy(&mut from, &mut there);
        let _closed = there.shutdown(Shutdown::Write);
    });
    std::io::copy(&mut back, &mut out)?;
    out.shutdown(Shutdown::Write)
}
