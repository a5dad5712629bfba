//! Requests that the process makes to its own server.
//!
//! They pass all stages of a client's request: key, limits, validation, hold, meter, log. Only the wire is
//! missing: their Pingora session has its request in memory and gives its response through a queue.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora_proxy::Session;

use crate::error::{ErrorKind, GatewayError};
use crate::finished::RequestSettlement;
use crate::gateway::listen::deadline::Deadline;
use crate::gateway::listen::driver::{self, ServeSession};
use crate::gateway::listen::origin::Origin;
use crate::gateway::wire::head::AnswerHead;

mod queue;
mod serving;
mod session;

use queue::{QueueReader, SettlementSender, queue};
use serving::Serving;
use session::LoopbackSession;

/// Sessions kept for reuse: about as many as are in use at one time under an ordinary load.
const SESSIONS_MAX: usize = 64;

/// A client of the gateway inside the process. It is connected once the gateway is there; clones share the
/// connection.
#[derive(Clone, Default)]
pub struct LoopbackClient(Arc<OnceLock<Arc<LoopbackServer>>>);

struct LoopbackServer {
    gateway: Box<dyn ServeSession>,
    deadline: Arc<Deadline>,
    /// Unused sessions of Pingora's.
    sessions: Mutex<Vec<Session>>,
}

impl LoopbackServer {
    async fn serve(&self, own: LoopbackSession) {
        let free = self.sessions.lock().pop();
        let mut session = free.unwrap_or_else(driver::session);
        self.gateway.serve(&mut session, Box::new(own)).await;
        let mut free = self.sessions.lock();
        if free.len() < SESSIONS_MAX {
            free.push(session);
        }
    }
}

/// An in-process request.
#[derive(Clone, Debug)]
pub struct LoopbackRequest {
    /// The method of the request.
    pub method: Method,
    /// Its path, and its query if it has one.
    pub path: String,
    /// Its headers; the length of the body and `Host` are added.
    pub headers: HeaderMap,
    /// Complete body of the request.
    pub body: Bytes,
    /// The customer's address, for logs and limits.
    pub address: Option<IpAddr>,
    /// The connection on behalf of which the request is made; `None` for one of the process itself.
    pub origin: Option<Origin>,
}

impl LoopbackClient {
    /// Connects the client to `gateway`. Hosted services cannot be reached by it: one that calls itself would
    /// never end.
    pub(crate) fn connect(&self, gateway: impl ServeSession + 'static, deadline: Arc<Deadline>) {
        let gateway = Box::new(gateway);
        // The first connection stays.
        drop(self.0.set(Arc::new(LoopbackServer {
            gateway,
            deadline,
            sessions: Mutex::default(),
        })));
    }

    /// Sends a request, and waits for the head of its response. Dropping this, or the response, is a disconnect
    /// of the client.
    ///
    /// # Errors
    /// `Internal` when there is no gateway, or it ends the request without an answer.
    pub async fn send(&self, request: LoopbackRequest) -> Result<LoopbackResponse, GatewayError> {
        let mut reply = self.begin(request)?;
        if let Some(serving) = reply.serving.take() {
            // In a task of its own: the response may be read with long pauses.
            serving.go_on();
        }
        reply.read_head().await?;
        Ok(reply)
    }

    /// Sends a request whose response is read without a pause. The task that waits for it serves it as well,
    /// which spares a task. A panic in it unwinds the caller too.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub async fn send_in_place(
        &self,
        request: LoopbackRequest,
    ) -> Result<LoopbackResponse, GatewayError> {
        let mut reply = self.begin(request)?;
        reply.read_head().await?;
        Ok(reply)
    }

    /// A response whose head has not arrived.
    fn begin(&self, request: LoopbackRequest) -> Result<LoopbackResponse, GatewayError> {
        let server = self.0.get().ok_or_else(unanswered)?;
        let (writer, completion, queue) = queue();
        let session =
            LoopbackSession::new(request, writer, completion, Arc::clone(&server.deadline))
                .map_err(|error| {
                    unanswered().cause(crate::gateway::wire::error::describe_error(&error))
                })?;
        let server = Arc::clone(server);
        let serving = Some(Serving::new(async move { server.serve(session).await }));
        let (status, headers) = (0, HeaderMap::new());
        Ok(LoopbackResponse { status, headers, queue, serving, is_whole: false })
    }
}

/// Sends the settlement to the loopback caller that sent this request; does nothing for other requests.
pub(crate) fn complete(head: &RequestHeader, settled: RequestSettlement) {
    if let Some(completion) = head.extensions.get::<SettlementSender>() {
        completion.complete(settled);
    }
}

impl fmt::Debug for LoopbackClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopbackClient").field("is_connected", &self.0.get().is_some()).finish()
    }
}

/// A response of the gateway in progress.
pub struct LoopbackResponse {
    /// The HTTP status of the answer.
    pub status: u16,
    /// The headers of the answer.
    pub headers: HeaderMap,
    queue: QueueReader,
    /// The request, where the reader serves it. Dropped behind `queue`, which tells it that the reader has
    /// gone.
    serving: Option<Serving>,
    is_whole: bool,
}

impl fmt::Debug for LoopbackResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, headers, serving, is_whole, .. } = self;
        f.debug_struct("LoopbackResponse")
            .field("status", status)
            .field("headers", headers)
            .field("serving", serving)
            .field("is_whole", is_whole)
            .finish_non_exhaustive()
    }
}

/// A piece of an answer.
#[derive(Debug)]
enum Piece {
    Head(Box<ResponseHeader>),
    Data(Bytes),
    End,
}

impl Piece {
    /// The bytes of the body in it.
    fn bytes(&self) -> usize {
        match self {
            Self::Data(data) => data.len(),
            Self::Head(_) | Self::End => 0,
        }
    }
}

impl LoopbackResponse {
    async fn read_head(&mut self) -> Result<(), GatewayError> {
        let Some(Piece::Head(head)) = self.next().await else { return Err(unanswered()) };
        let head = AnswerHead::from(*head);
        (self.status, self.headers) = (head.status.as_u16(), head.headers.into());
        Ok(())
    }

    /// Next part of the response; `None` at the end.
    async fn next(&mut self) -> Option<Piece> {
        let Self { queue, serving, .. } = self;
        let Some(serving) = serving else { return queue.next().await };
        serving.until(|| queue.try_next()).await.flatten()
    }

    /// The settlement of the request, once its answer was read to the end; `None` if nothing was held.
    pub async fn settled(mut self) -> Option<RequestSettlement> {
        let Self { queue, serving, .. } = &mut self;
        let Some(serving) = serving else { return queue.settled().await };
        serving.until(|| queue.try_settled()).await.flatten()
    }

    /// Next piece of the body; `None` at the end.
    ///
    /// # Errors
    /// `BadGateway` when it breaks off.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, GatewayError> {
        if self.is_whole {
            return Ok(None);
        }
        match self.next().await {
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
