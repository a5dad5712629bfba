//! Calls that commands make to the admin API of a running gateway.

use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::secret::Secret;

/// The longest answer that is read, in bytes: configurations are at most 16 MiB a file, and JSON is
/// hardly longer than YAML.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// An answer: its status, and its body.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// Asks for `path`; all of it may take `time`.
pub(super) fn get(
    address: SocketAddr,
    path: &str,
    token: Option<&Secret>,
    time: Duration,
) -> std::io::Result<Answer> {
    let began = Instant::now();
    let left = || {
        let left = time.saturating_sub(began.elapsed());
        Some(left).filter(|left| !left.is_zero()).ok_or(Error::from(ErrorKind::TimedOut))
    };
    let mut stream = TcpStream::connect_timeout(&address, time)?;
    stream.set_write_timeout(Some(left()?))?;
    let token = token.map(|token| format!("Authorization: Bearer {}\r\n", token.expose()));
    let token = token.unwrap_or_default();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: tollgate\r\n{token}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut chunk)? {
            0 => break,
            count => answer.extend_from_slice(chunk.get(..count).unwrap_or_default()),
        }
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(Error::new(ErrorKind::InvalidData, "the answer has no end"));
        }
    }
    let none = || Error::new(ErrorKind::InvalidData, "this is no answer of a gateway's");
    let end = memchr::memmem::find(&answer, b"\r\n\r\n").ok_or_else(none)?;
    let (head, body) = answer.split_at(end);
    let status = head.get(9..12).and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
    let body = body.get(4..).unwrap_or_default().to_vec();
    Ok(Answer { status: status.ok_or_else(none)?, body })
}
