//! Handover to a new process, for example of a new version: it inherits the listening sockets and then
//! the ledger. `docs/adr/0009-handover.md` gives the reasons.
//!
//! The running process starts the next one with its sockets as systemd passes them (`LISTEN_FDS`), and
//! one end of a socket pair as standard input. The next one reports on it that it is ready, and then
//! waits for its end: at that point the ledger is free.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use command_fds::{CommandFdExt as _, FdMapping};
use listenfd::ListenFd;

use crate::cli::exit::{FAILED, Failure};

/// Argument that makes a process wait for its predecessor.
pub(super) const TAKE_OVER: &str = "--take-over";
/// First passed descriptor: `SD_LISTEN_FDS_START` of sd_listen_fds(3).
const FIRST_FD: i32 = 3;
/// Timeout of the next process's start, which only reads its configuration.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Extra time beyond its grace period for a process to end: cutting, closing and a slow disk.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// Time after that for the ledger's lock to disappear: the kernel closes files in no order.
const UNLOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Polling interval of the lock.
const UNLOCK_POLL: Duration = Duration::from_millis(10);
/// Unsent bytes that the kernel buffers per connection: two chunks of a large answer, so that the
/// connection stays busy while the next one comes.
const UNSENT_BYTES_MAX: u32 = 64 * 1024;
/// Byte by which the next process reports that it is ready.
const UP: u8 = b'u';

/// Program path, arguments and listening sockets for the next process.
pub(super) struct Handover {
    executable: PathBuf,
    arguments: Vec<OsString>,
    listeners: Vec<TcpListener>,
}

/// A process that waits for this one to end. It continues when this is dropped.
pub(super) struct Successor {
    process: Child,
    _line: UnixStream,
}

impl Handover {
    /// Collect what the next process will need. Done early: a program replaced on disk cannot be found
    /// by its name any more.
    pub(super) fn prepare(listeners: Vec<TcpListener>) -> anyhow::Result<Self> {
        let executable = std::env::current_exe().context("this program cannot be found")?;
        let is_passed_on = |argument: &OsString| argument != TAKE_OVER;
        let arguments = std::env::args_os().skip(1).filter(is_passed_on).collect();
        Ok(Self { executable, arguments, listeners })
    }

    /// Start the next process and wait until it is ready. Blocks.
    ///
    /// # Errors
    /// It does not become ready; nothing has changed then.
    pub(super) fn start(&self) -> anyhow::Result<Successor> {
        if std::process::id() == 1 {
            bail!("a container ends with its first process: start a second container instead");
        }
        let (ours, theirs) = UnixStream::pair()?;
        let mut mappings = Vec::with_capacity(self.listeners.len());
        for (child_fd, listener) in (FIRST_FD..).zip(&self.listeners) {
            mappings.push(FdMapping { parent_fd: listener.try_clone()?.into(), child_fd });
        }
        let mut command = Command::new(&self.executable);
        command
            .args(&self.arguments)
            .arg(TAKE_OVER)
            .env("LISTEN_FDS", mappings.len().to_string())
            // Both would name this process.
            .env_remove("LISTEN_PID")
            .env_remove("WATCHDOG_PID")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .fd_mappings(mappings)?;
        let name = self.executable.display();
        let mut process = command.spawn().with_context(|| format!("cannot start {name}"))?;
        // It holds the other end of the pair open otherwise.
        drop(command);
        match wait_until_ready(&ours) {
            Ok(()) => Ok(Successor { process, _line: ours }),
            Err(error) => {
                // It may have ended by itself.
                drop(process.kill());
                drop(process.wait());
                Err(error).context("the next process did not come up")
            }
        }
    }
}

fn wait_until_ready(mut line: &UnixStream) -> io::Result<()> {
    line.set_read_timeout(Some(START_TIMEOUT))?;
    let mut byte = [0];
    line.read_exact(&mut byte)?;
    if byte == [UP] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

impl Successor {
    /// Process id of the next process.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }
}

/// Listening sockets inherited from the predecessor or from systemd.
#[derive(Default)]
pub(super) struct InheritedListeners(Vec<TcpListener>);

impl InheritedListeners {
    /// Takes over the sockets named in the environment.
    pub(super) fn from_environment() -> anyhow::Result<Self> {
        let mut passed = ListenFd::from_env();
        let mut listeners = Vec::with_capacity(passed.len());
        for index in 0..passed.len() {
            let listener = passed.take_tcp_listener(index);
            let listener = listener.context("a descriptor in LISTEN_FDS is no TCP socket")?;
            listeners.extend(listener);
        }
        Ok(Self(listeners))
    }

    /// Listening socket on `address`: inherited, or new. Port 0 takes the next inherited one on this IP
    /// address.
    pub(super) fn bind(&mut self, address: SocketAddr) -> anyhow::Result<TcpListener> {
        let fits = |listener: &TcpListener| {
            listener.local_addr().is_ok_and(|bound| {
                bound == address || (address.port() == 0 && bound.ip() == address.ip())
            })
        };
        let socket = match self.0.iter().position(fits) {
            Some(index) => self.0.remove(index),
            None => TcpListener::bind(address).map_err(|error| cannot_listen(address, &error))?,
        };
        socket.set_nonblocking(true)?;
        bound_unsent(&socket);
        Ok(socket)
    }
}

/// Bound the kernel's buffer of unsent bytes on each connection accepted from `listener`. The default is
/// up to 4 MiB (`net.ipv4.tcp_wmem`), which counts as a container's memory under control groups v2: 40
/// streams that nobody read took 107 MiB.
fn bound_unsent(listener: &TcpListener) {
    // What was sent and is not acknowledged does not count, so long and fast ways are filled as before.
    let bounded = socket2::SockRef::from(listener).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    if let Err(error) = bounded {
        log::warn!("the kernel does not bound what is unsent on a connection: {error}");
    }
}

/// Error for a socket on `address`, with advice if the port is taken.
fn cannot_listen(address: SocketAddr, error: &io::Error) -> Failure {
    let help = (error.kind() == io::ErrorKind::AddrInUse).then(|| {
        "another process listens there: stop it, or choose another address with --listen or --admin"
            .to_owned()
    });
    let message = format!("cannot listen on {address}: {error}");
    Failure { code: FAILED, message, help }
}

/// Asks the predecessor to end and waits until it has. Blocks. `grace` is its grace period for requests.
///
/// # Errors
/// It does not end.
pub(super) fn wait_for_predecessor(grace: Duration) -> anyhow::Result<()> {
    let line = io::stdin().as_fd().try_clone_to_owned()?;
    let mut line = UnixStream::from(line);
    line.write_all(&[UP]).with_context(|| {
        format!("{TAKE_OVER} is for processes that SIGQUIT to another one has started")
    })?;
    log::info!("waiting for the ledger of the process before this one");
    line.set_read_timeout(Some(grace + END_TIMEOUT))?;
    match line.read(&mut [0]) {
        // Closed, in whatever way: it is gone.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        Err(error) => Err(error).context("the process before this one has not ended"),
    }
}

/// Open a resource that the predecessor may lock for another moment. Blocks.
pub(super) fn once_unlocked<T, E>(
    mut open: impl FnMut() -> Result<T, E>,
    is_locked: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let began = Instant::now();
    loop {
        match open() {
            Err(error) if is_locked(&error) && began.elapsed() < UNLOCK_TIMEOUT => {
                std::thread::sleep(UNLOCK_POLL);
            }
            done => return done,
        }
    }
}
