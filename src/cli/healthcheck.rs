//! `tollgate healthcheck`: whether a gateway wants requests, for container engines that ask by
//! running a command.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;

/// The longest answer that is read, in bytes. The probe's has a hundred.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// Ask a running gateway whether it wants requests: exits with 0 if it does.
#[derive(Debug, Args)]
pub(super) struct Healthcheck {
    /// Address of the admin API.
    #[arg(long, default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)), value_name = "ADDRESS")]
    admin: SocketAddr,
    /// How long the whole answer may take, in milliseconds.
    #[arg(long, default_value_t = 2000, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout_ms: u64,
}

impl Healthcheck {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let address = super::serve::callable(self.admin);
        let answer = ask(address, Duration::from_millis(self.timeout_ms))
            .with_context(|| format!("no answer from {address}"))?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let is_ready = head.split(' ').nth(1) == Some("200");
        println!("{}", body.trim());
        Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// What `/readyz` says, head and body.
fn ask(address: SocketAddr, time: Duration) -> std::io::Result<String> {
    let began = Instant::now();
    let left = || {
        let left = time.saturating_sub(began.elapsed());
        let in_time = Some(left).filter(|left| !left.is_zero());
        in_time.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::TimedOut))
    };
    let mut stream = TcpStream::connect_timeout(&address, time)?;
    stream.set_write_timeout(Some(left()?))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: tollgate\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut chunk = [0; 1024];
    while answer.len() < ANSWER_BYTES_MAX {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut chunk)? {
            0 => break,
            count => answer.extend_from_slice(chunk.get(..count).unwrap_or_default()),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
