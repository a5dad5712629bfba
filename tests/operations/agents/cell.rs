//! A session of an agent, under one name of a model, over an upstream of one dialect.

use std::path::Path;
use std::sync::{Arc, Mutex};

use tollgate::sim::Sim;

use crate::harness::{Gateway, node, simulator};

use super::agent::{Agent, Ended};
use super::check;
use super::script::{Answered, Session};
use super::upstream::Upstream;

/// A picture of 8 × 8 points.
const PICTURE: &[u8] = include_bytes!("../../clients/picture.png");
/// Time for a client that shares two cores with many others.
pub(crate) const PATIENT: &str = "  body_timeout: 60s\n  read_timeout: 60s\n  write_timeout: 60s\n";

/// A cell of the table of clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) agent: Agent,
    pub(crate) model: &'static str,
    pub(crate) upstream: Upstream,
}

/// All that is left of a session when it is over.
pub(crate) struct Played {
    pub(crate) cell: Cell,
    pub(crate) session: Session,
    pub(crate) ended: Ended,
    pub(crate) answered: Vec<Answered>,
    pub(crate) work: tempfile::TempDir,
    pub(crate) gateway: Gateway,
}

/// The directory in which an agent works, as it is before the session.
pub(crate) fn work(session: &Session) -> tempfile::TempDir {
    let work = tempfile::tempdir().expect("a directory");
    std::fs::write(work.path().join("picture.png"), PICTURE).expect("the picture");
    for (name, content) in session.files("files") {
        std::fs::write(work.path().join(name), content).expect("a file");
    }
    work
}

/// A strict simulated upstream that plays the session.
pub(crate) fn upstream(session: &Session, work: &Path) -> (Sim, Arc<Mutex<Vec<Answered>>>) {
    let sim = simulator(&["strict=on"]);
    let (script, answered) = session.script(work);
    sim.set_script(script);
    (sim, answered)
}

impl Cell {
    /// True if requests are relayed byte for byte.
    pub(crate) fn is_native(self) -> bool {
        self.upstream == self.agent.native()
    }

    /// Plays the session, and says by its first fault why it is no success.
    pub(crate) fn result(self) -> Result<usize, String> {
        check::check(&self.play())
    }

    pub(crate) fn play(self) -> Played {
        let session = Session::load();
        let work = work(&session);
        let (sim, answered) = upstream(&session, work.path());
        let models = format!("models:\n{}", self.upstream.model(self.model, self.is_native()));
        let gateway = Gateway::limited(PATIENT, &self.upstream.routes(sim.addr()), &models);
        let base_url = format!("http://{}", gateway.address);
        let ended = self.agent.run(
            &node::commands(),
            (&base_url, &gateway.key),
            self.model,
            work.path(),
            session.prompt(),
        );
        let answered = answered.lock().expect("no poison").clone();
        Played { cell: self, session, ended, answered, work, gateway }
    }
}
