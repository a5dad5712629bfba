//! Requests that the process makes to its own front.
//!
//! They pass through every stage that a customer's request passes through: the key, the limits, the
//! checks, the hold, the meter, the log. What they do without is the wire. Pingora takes sessions of
//! any kind; this one has its request in memory, and gives its answer through a queue.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use pingora::http::{RequestHeader, ResponseHeader};
use tokio::sync::{mpsc, oneshot};

use crate::error::{ErrorKind, GatewayError};
use crate::finished::Settled;
use crate::gateway::listen::deadline::Deadline;
use crate::gateway::listen::hooks;
use crate::gateway::proxy::Gateway;

mod session;

use session::InnerSession;

/// Pieces of an answer that wait for their reader. Each is what an upstream sent at once, so this is
/// about as much as a socket holds.
const PIECES_MAX: usize = 16;

/// A way to the gateway from inside the process. It leads somewhere once the gateway is there; its
/// clones lead to the same one.
#[derive(Clone, Default)]
pub struct Inward(Arc<OnceLock<Front>>);

struct Front {
    gateway: Gateway,
    deadline: Arc<Deadline>,
}

/// A request from inside.
#[derive(Clone, Debug)]
pub struct Inner {
    /// The method of the request.
    pub method: Method,
    /// Its path, and its query if it has one.
    pub path: String,
    /// Its headers; the length of the body and `Host` are added.
    pub headers: HeaderMap,
    /// The body of the request, which is whole.
    pub body: Bytes,
    /// Whose request it is, as logs and limits know them.
    pub address: Option<IpAddr>,
}

impl Inward {
    /// From now on it leads to `gateway`. What it hosts cannot be reached from inside: a service
    /// that calls itself would never end.
    pub(crate) fn lead_to(&self, gateway: Gateway, deadline: Arc<Deadline>) {
        // One that leads somewhere already goes on leading there.
        drop(self.0.set(Front { gateway, deadline }));
    }

    /// Makes a request, and waits for the head of its answer. Dropping this, or the reply, ends the
    /// request as a customer does who leaves.
    ///
    /// # Errors
    /// `Internal` when there is no gateway, or it ends the request without an answer.
    pub async fn ask(&self, request: Inner) -> Result<Reply, GatewayError> {
        let front = self.0.get().ok_or_else(unanswered)?;
        let (pieces, reply) = mpsc::channel(PIECES_MAX);
        let (tell, settled) = oneshot::channel();
        let teller = Teller(Arc::new(Mutex::new(Some(tell))));
        let session = InnerSession::new(request, pieces, teller, Arc::clone(&front.deadline))
            .map_err(|error| unanswered().cause(crate::gateway::describe_error(&error)))?;
        let gateway = front.gateway.clone();
        // On its own, so that it is settled whatever becomes of whoever asked.
        tokio::spawn(async move {
            hooks::serve(&gateway, &mut hooks::session(), Box::new(session)).await;
        });
        Reply::begin(reply, settled).await
    }
}

/// Tells whoever asked from inside what the request came to.
#[derive(Clone)]
struct Teller(Arc<Mutex<Option<oneshot::Sender<Settled>>>>);

/// The request whose head this is was settled.
pub(crate) fn tell(head: &RequestHeader, settled: Settled) {
    let Some(Teller(teller)) = head.extensions.get() else { return };
    if let Some(teller) = teller.lock().take() {
        // Who has left does not want to know.
        let _is_heard = teller.send(settled);
    }
}

impl fmt::Debug for Inward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inward").field("leads_somewhere", &self.0.get().is_some()).finish()
    }
}

/// An answer of the gateway, as far as it has come.
#[derive(Debug)]
pub struct Reply {
    /// The HTTP status of the answer.
    pub status: u16,
    /// The headers of the answer.
    pub headers: HeaderMap,
    pieces: mpsc::Receiver<Piece>,
    settled: oneshot::Receiver<Settled>,
    is_whole: bool,
}

/// A part of an answer.
#[derive(Debug)]
enum Piece {
    Head(Box<ResponseHeader>),
    Data(Bytes),
    End,
}

impl Reply {
    async fn begin(
        mut pieces: mpsc::Receiver<Piece>,
        settled: oneshot::Receiver<Settled>,
    ) -> Result<Self, GatewayError> {
        match pieces.recv().await {
            Some(Piece::Head(head)) => {
                let (status, headers) = (head.status.as_u16(), head.headers.clone());
                Ok(Self { status, headers, pieces, settled, is_whole: false })
            }
            _ => Err(unanswered()),
        }
    }

    /// What it came to, for one that has been read to its end; `None` when nothing was held for it.
    pub async fn settled(self) -> Option<Settled> {
        self.settled.await.ok()
    }

    /// The next piece of its body; `None` at its end.
    ///
    /// # Errors
    /// `BadGateway` when it breaks off.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, GatewayError> {
        if self.is_whole {
            return Ok(None);
        }
        match self.pieces.recv().await {
            Some(Piece::Data(piece)) => Ok(Some(piece)),
            Some(Piece::End | Piece::Head(_)) => {
                self.is_whole = true;
                Ok(None)
            }
            None => {
                let message = "The answer broke off. What was delivered is charged.";
                Err(GatewayError::new(ErrorKind::BadGateway, message))
            }
        }
    }
}

fn unanswered() -> GatewayError {
    GatewayError::new(ErrorKind::Internal, "The gateway did not answer.")
}
