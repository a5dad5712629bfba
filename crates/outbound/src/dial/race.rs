//! Attempts at several addresses side by side, of which the first that is ready wins (RFC 8305).

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::connection::Io;
use super::error::Reason;
use super::names::DnsCache;

/// The delay before the next address is tried in parallel, as RFC 8305, section 5, recommends.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// The delay of a handshake over TCP before the next address is tried in parallel. A provider on another
/// continent takes half of it.
const HANDSHAKE_DELAY: Duration = Duration::from_secs(1);

/// An address that failed, and why.
pub(super) type FailedAttempt = (SocketAddr, Reason);

/// Connects to the first of `addresses` that can be connected to and secured. All of them are begun
/// before `deadline`.
///
/// # Errors
/// Why each of them failed.
pub(super) async fn race<F>(
    names: &DnsCache,
    addresses: Vec<SocketAddr>,
    deadline: Instant,
    secure: impl Fn(TcpStream) -> F,
) -> Result<(Io, SocketAddr), Vec<FailedAttempt>>
where
    F: Future<Output = Result<Io, Reason>>,
{
    let mut attempts = DialAttempts::new(addresses);
    let mut connecting = FuturesUnordered::new();
    let mut securing = FuturesUnordered::new();
    let mut next_at = Instant::now();
    loop {
        if attempts.is_exhausted() && connecting.is_empty() && securing.is_empty() {
            return Err(attempts.fail(names));
        }
        tokio::select! {
            biased;
            Some((address, secured)) = securing.next(), if !securing.is_empty() => match secured {
                Ok(io) => {
                    attempts.note_outrun(names, address);
                    names.note_connected(address);
                    return Ok((io, address));
                }
                Err(reason) => {
                    attempts.failed(address, reason);
                    next_at = Instant::now();
                }
            },
            Some((address, connected)) = connecting.next(), if !connecting.is_empty() => {
                let (stream, is_first): (io::Result<TcpStream>, _) =
                    (connected, securing.is_empty());
                match stream {
                    Ok(stream) if is_first => {
                        securing.push(handshake(address, secure(stream)));
                        next_at = Instant::now() + attempts.delay(HANDSHAKE_DELAY, deadline);
                    }
                    Ok(stream) => attempts.connected.push_back((address, stream)),
                    Err(error) => {
                        attempts.failed(address, Reason::of_connect(address, error));
                        if is_first {
                            next_at = Instant::now();
                        }
                    }
                }
            },
            () = sleep_until(next_at), if !attempts.is_exhausted() => {
                if let Some((address, stream)) = attempts.connected.pop_front() {
                    securing.push(handshake(address, secure(stream)));
                    next_at = Instant::now() + attempts.delay(HANDSHAKE_DELAY, deadline);
                } else if let Some(address) = attempts.begin() {
                    connecting.push(connect(address));
                    next_at = Instant::now() + attempts.delay(ATTEMPT_DELAY, deadline);
                }
            },
            () = sleep_until(deadline) => return Err(attempts.fail(names)),
        }
    }
}

async fn connect(address: SocketAddr) -> (SocketAddr, io::Result<TcpStream>) {
    let connected = TcpStream::connect(address).await;
    // Requests are written whole: nothing is gained by waiting for more.
    let connected = connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
    (address, connected)
}

async fn handshake<F>(address: SocketAddr, secured: F) -> (SocketAddr, Result<Io, Reason>)
where
    F: Future<Output = Result<Io, Reason>>,
{
    (address, secured.await)
}

/// The attempts at each address.
struct DialAttempts {
    waiting: VecDeque<SocketAddr>,
    /// Attempts in progress with their start times.
    begun: Vec<(SocketAddr, Instant)>,
    /// Connected over TCP while another one was in its handshake.
    connected: VecDeque<(SocketAddr, TcpStream)>,
    failures: Vec<FailedAttempt>,
}

impl DialAttempts {
    fn new(addresses: Vec<SocketAddr>) -> Self {
        let (begun, connected, failures) = (Vec::new(), VecDeque::new(), Vec::new());
        Self { waiting: addresses.into(), begun, connected, failures }
    }

    /// True if no attempt is left.
    fn is_exhausted(&self) -> bool {
        self.waiting.is_empty() && self.connected.is_empty()
    }

    fn begin(&mut self) -> Option<SocketAddr> {
        let address = self.waiting.pop_front()?;
        self.begun.push((address, Instant::now()));
        Some(address)
    }

    fn failed(&mut self, address: SocketAddr, reason: Reason) {
        self.begun.retain(|(begun, _)| *begun != address);
        // The next address needs the same resource: trying all of them would be a storm for nothing.
        if reason.fault.exhausted().is_some_and(|resource| !resource.is_per_destination()) {
            self.waiting.clear();
        }
        self.failures.push((address, reason));
    }

    /// The delay until the next attempt, so that every address has its turn before `deadline`.
    fn delay(&self, usual: Duration, deadline: Instant) -> Duration {
        let left = deadline.saturating_duration_since(Instant::now());
        let still = u32::try_from(self.waiting.len() + self.connected.len()).unwrap_or(u32::MAX);
        usual.min(left / still.saturating_add(1))
    }

    /// Notes those that failed, and those that had a fair start and did not win.
    fn note_outrun(&self, names: &DnsCache, winner: SocketAddr) {
        self.note_failed(names);
        for (address, began) in &self.begun {
            if *address != winner && began.elapsed() >= ATTEMPT_DELAY {
                names.note_failed(*address);
            }
        }
    }

    /// Collects every failure; addresses without an answer have timed out.
    fn fail(mut self, names: &DnsCache) -> Vec<FailedAttempt> {
        for (address, _) in &self.begun {
            self.failures.push((*address, Reason::timed_out()));
        }
        self.note_failed(names);
        self.failures
    }

    /// Notes the addresses that failed by a fault of their own.
    fn note_failed(&self, names: &DnsCache) {
        let own = self.failures.iter().filter(|(_, reason)| reason.fault.exhausted().is_none());
        own.for_each(|(address, _)| names.note_failed(*address));
    }
}
