//! A wire between a gateway and its database that can be cut, held, and lose an answer.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

/// Treatment of sent data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Pass,
    /// Nothing passes, and nobody is told: a network that loses every packet.
    Stalled,
    /// Connections are closed, and new ones closed at once.
    Cut,
}

/// Treatment of the next COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commit {
    Pass,
    /// It arrives and is done; its answer does not arrive, and the connection breaks.
    LoseAnswer,
    /// It does not arrive, and the connection breaks.
    LoseQuestion,
}

struct Wire {
    state: Mutex<(Mode, Commit)>,
    changed: Condvar,
    sockets: Mutex<Vec<TcpStream>>,
}

/// The wire. It is gone with its value.
pub(crate) struct Cut {
    wire: Arc<Wire>,
    port: u16,
}

impl Cut {
    /// A wire to `port` on 127.0.0.1.
    pub(crate) fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own_port = listener.local_addr().expect("an address").port();
        let wire = Arc::new(Wire {
            state: Mutex::new((Mode::Pass, Commit::Pass)),
            changed: Condvar::new(),
            sockets: Mutex::new(Vec::new()),
        });
        let accepting = Arc::clone(&wire);
        thread::spawn(move || {
            for client in listener.incoming() {
                if Arc::strong_count(&accepting) == 1 {
                    return;
                }
                let Ok(client) = client else { return };
                let wire = Arc::clone(&accepting);
                thread::spawn(move || wire.join(client, port));
            }
        });
        Self { wire, port: own_port }
    }

    /// The same address, by way of this wire.
    pub(crate) fn url(&self, url: &str) -> String {
        let (front, rest) = url.split_once('@').expect("a user");
        let (_, database) = rest.split_once('/').expect("a database");
        format!("{front}@127.0.0.1:{}/{database}", self.port)
    }

    /// Everything passes again.
    pub(crate) fn resume(&self) {
        self.wire.turn(|state| state.0 = Mode::Pass);
    }

    /// Nothing passes, and nobody is told.
    pub(crate) fn stall(&self) {
        self.wire.turn(|state| state.0 = Mode::Stalled);
    }

    /// Connections are closed, and new ones closed at once.
    pub(crate) fn cut(&self) {
        self.wire.turn(|state| state.0 = Mode::Cut);
        self.wire.close();
    }

    /// The next COMMIT is done, but its answer is lost with the connection.
    pub(crate) fn lose_answer_to_commit(&self) {
        self.wire.turn(|state| state.1 = Commit::LoseAnswer);
    }

    /// The next COMMIT is lost with the connection.
    pub(crate) fn lose_commit(&self) {
        self.wire.turn(|state| state.1 = Commit::LoseQuestion);
    }

    /// True if a COMMIT was lost, or its answer, since that was asked for.
    pub(crate) fn has_lost(&self) -> bool {
        self.wire.state().1 == Commit::Pass
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.cut();
        // The thread that accepts looks up, and ends.
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        drop(TcpStream::connect(address));
    }
}

impl Wire {
    fn state(&self) -> MutexGuard<'_, (Mode, Commit)> {
        self.state.lock().expect("the wire")
    }

    fn turn(&self, change: impl FnOnce(&mut (Mode, Commit))) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn close(&self) {
        for socket in self.sockets.lock().expect("sockets").drain(..) {
            // It may be closed already.
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// Waits while nothing passes; false when the wire is cut.
    fn passes(&self) -> bool {
        let state = self.state();
        let stalled = |state: &mut (Mode, Commit)| state.0 == Mode::Stalled;
        self.changed.wait_while(state, stalled).expect("the wire").0 == Mode::Pass
    }

    fn join(self: Arc<Self>, client: TcpStream, port: u16) {
        if !self.passes() {
            return;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { return };
        for socket in [&client, &server] {
            socket.set_nodelay(true).expect("no delay");
            self.sockets.lock().expect("sockets").push(socket.try_clone().expect("a socket"));
        }
        let lost = Arc::new(Mutex::new(false));
        let answers = {
            let (wire, lost) = (Arc::clone(&self), Arc::clone(&lost));
            let from = server.try_clone().expect("a socket");
            let to = client.try_clone().expect("a socket");
            thread::spawn(move || wire.pump(from, to, |_| *lost.lock().expect("lost")))
        };
        let wire = Arc::clone(&self);
        self.pump(client, server, move |sent| {
            if !sent.windows(7).any(|window| window == b"COMMIT\0") {
                return false;
            }
            let mut state = wire.state();
            let commit = std::mem::replace(&mut state.1, Commit::Pass);
            if commit == Commit::LoseAnswer {
                *lost.lock().expect("lost") = true;
            }
            commit == Commit::LoseQuestion
        });
        drop(answers.join());
    }

    /// Carries bytes until either side ends, or `loses` says that these break the connection.
    fn pump(&self, mut from: TcpStream, mut to: TcpStream, loses: impl Fn(&[u8]) -> bool) {
        let mut buffer = [0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let sent = &buffer[..count];
            if !self.passes() || loses(sent) || to.write_all(sent).is_err() {
                break;
            }
        }
        // Each may be closed already.
        drop(from.shutdown(Shutdown::Both));
        drop(to.shutdown(Shutdown::Both));
    }
}
