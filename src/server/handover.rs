//! The next process takes over, as for a new version of the program: it gets the listening sockets
//! of the one that runs, and then its ledger. `docs/adr/0009-handover.md` says why it goes like this.
//!
//! The process that runs starts the next one with its sockets as systemd passes them
//! (`LISTEN_FDS`), and one end of a socket pair for standard input. The next one says over it that
//! it has come up, and then waits for its end: that is when the ledger is free.

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

/// The argument that makes a process wait for the one before it.
pub(super) const TAKE_OVER: &str = "--take-over";
/// The first descriptor that is passed on: `SD_LISTEN_FDS_START` of sd_listen_fds(3).
const FIRST_FD: i32 = 3;
/// How long the next process may take to come up. It reads its configuration, and no more.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How much longer than its grace a process may take to end: cutting, closing and a slow disk.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// How long, after that, the ledger's lock may still be there: the kernel closes files in no order.
const UNLOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the lock is tried meanwhile.
const UNLOCK_POLL: Duration = Duration::from_millis(10);
/// What the kernel takes of an answer ahead of what it sends, in bytes: two pieces of a large answer, so the
/// way to the customer is filled while the next one comes.
const UNSENT_BYTES_MAX: u32 = 64 * 1024;
/// What the next process says when it has come up.
const UP: u8 = b'u';

/// How this program was started, and on which sockets it listens.
pub(super) struct Handover {
    executable: PathBuf,
    arguments: Vec<OsString>,
    listeners: Vec<TcpListener>,
}

/// A process that waits for this one to end. It goes on when this is dropped.
pub(super) struct Successor {
    process: Child,
    _line: UnixStream,
}

impl Handover {
    /// Notes what the next process will need. Early: a program that is replaced on disk cannot be
    /// found by its own name any more.
    pub(super) fn prepare(listeners: Vec<TcpListener>) -> anyhow::Result<Self> {
        let executable = std::env::current_exe().context("this program cannot be found")?;
        let known = |argument: &OsString| argument != TAKE_OVER;
        let arguments = std::env::args_os().skip(1).filter(known).collect();
        Ok(Self { executable, arguments, listeners })
    }

    /// Starts the next process, and waits until it has come up. Blocks.
    ///
    /// # Errors
    /// When it does not; nothing has changed then.
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
        match said_up(&ours) {
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

fn said_up(mut line: &UnixStream) -> io::Result<()> {
    line.set_read_timeout(Some(START_TIMEOUT))?;
    let mut said = [0];
    line.read_exact(&mut said)?;
    if said == [UP] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

impl Successor {
    /// The process id of the next process.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }
}

/// Listening sockets that this process was started with, by the one before it or by systemd.
#[derive(Default)]
pub(super) struct Inherited(Vec<TcpListener>);

impl Inherited {
    /// Those that the environment names.
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

    /// A socket that listens on `address`: the one that was passed, or a new one. Port 0 takes any
    /// that was passed on this IP address, in their order.
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

/// Bounds what the kernel keeps of answers that are not taken, on each connection that is accepted from
/// `listener`. By default that is up to 4 MiB (`net.ipv4.tcp_wmem`), which counts for the memory of a
/// container under control groups v2: 40 streams that nobody read took 107 MiB.
fn bound_unsent(listener: &TcpListener) {
    // What was sent and is not acknowledged does not count, so long and fast ways are filled as before.
    let bounded = socket2::SockRef::from(listener).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    if let Err(error) = bounded {
        log::warn!("the kernel does not bound what is unsent on a connection: {error}");
    }
}

/// Why there is no socket on `address`, and what to do where others have it.
fn cannot_listen(address: SocketAddr, error: &io::Error) -> Failure {
    let help = (error.kind() == io::ErrorKind::AddrInUse).then(|| {
        "another process listens there: stop it, or choose another address with --listen or --admin"
            .to_owned()
    });
    let message = format!("cannot listen on {address}: {error}");
    Failure { code: FAILED, message, help }
}

/// Tells the process before this one that it may end, and waits until it has. Blocks. `grace` is
/// the time that it gives its requests.
///
/// # Errors
/// When it does not end.
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

/// Opens what the process before this one may hold for another moment. Blocks.
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
