//! The Responses API over WebSockets, as Codex speaks it: one turn after the other on one connection.
//!
//! A turn is a request that the gateway makes to itself, with the headers of the one that opened the
//! connection: it has its own key check, limits, hold, meter, settlement and line in the log, and upstreams
//! are asked over HTTP as for any other. What is here is frames, the order of turns, and what a connection
//! has in mind: its last response, so that the next turn need not repeat the conversation.
//!
//! | File | What |
//! |---|---|
//! | `handshake` | whether a request becomes a WebSocket |
//! | `frames` | bytes in, messages out |
//! | `pipe` | bytes frame by frame, and what they take |
//! | `connection` | one customer's connection: its socket, its memory, its time |
//! | `turn` | what a message asks for |
//! | `events` | the messages that answer it |

mod handshake;
mod frames;
mod pipe;
mod connection;
mod turn;
mod events;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER,
    SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use pingora_proxy::Session;

use crate::config::snapshot::Route;
use crate::error::{ErrorKind, GatewayError};
use crate::gateway::answer::refused;
use crate::gateway::listen::loopback::{LoopbackRequest, LoopbackResponse};
use crate::gateway::listen::origin::Origin;
use crate::gateway::receive::body::ReadLimits;
use crate::gateway::request::context::RequestContext;
use crate::gateway::request::envelope::Envelope;
use crate::gateway::request::failure::is_json;
use crate::gateway::request::services::Gateway;
use crate::gateway::request::status;
use crate::gateway::wire::error::client_disconnected;
use crate::gateway::wire::head::{self, X_REQUEST_ID};
use crate::ids::RequestId;
use crate::money::Nanousd;
use connection::{CustomerSocket, EndReason};
use events::{Outgoing, ResponseEnd, TurnEvents};
pub(crate) use handshake::{can_be_had, is_upgrade};
use turn::{ClientMessage, LastResponse, TurnHistory};

/// Hop-by-hop headers of the handshake, which are not passed to the requests of its turns.
const OF_CONNECTION: [HeaderName; 9] = [
    HOST,
    CONNECTION,
    UPGRADE,
    CONTENT_LENGTH,
    ACCEPT_ENCODING,
    SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION,
    SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_PROTOCOL,
];

/// Serves a WebSocket until it is closed.
///
/// # Errors
/// Before the WebSocket has begun: the request or its key is not valid, or no slot is free.
pub(crate) async fn serve(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &mut RequestContext,
    route: &Route,
) -> Result<(), GatewayError> {
    ctx.routing.local_route = "/v1/responses (WebSocket)";
    // Its turns are requests for the operation; it is none itself.
    ctx.routing.route = None;
    gateway.admit_customer(session, ctx)?;
    let head = session.req_header();
    let accept = handshake::accept(&head.headers)?;
    let mut headers = head.headers.clone();
    OF_CONNECTION.iter().for_each(|name| drop(headers.remove(name)));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let address = ctx.client(session);
    let origin = Origin::of_session(session).cloned();
    let turns = Turns { gateway, route, headers, address, origin, last: None };
    let limits = ReadLimits::new(ctx, route.body_bytes_max);
    let _open =
        gateway.request_slots.websocket(ctx.admission.slot.as_ref(), &ctx.snapshot.limits)?;
    let header = handshake::head(&accept, ctx.id);
    head::write(session, header, false).await.map_err(|error| client_disconnected(&error))?;
    ctx.response.first_byte = Some(ctx.started.elapsed());
    // Its turns are requests in flight, each for itself.
    ctx.end_in_flight();
    // Its turns take slots of their own, and in between it needs none.
    ctx.admission.slot = None;
    let deadline = Arc::clone(&ctx.services.deadline);
    let mut connection = CustomerSocket::new(session, &gateway.bodies, limits, deadline);
    let ended = turns.serve(&mut connection).await;
    connection.end(ended).await;
    Ok(())
}

/// The turns of one connection.
struct Turns<'a> {
    gateway: &'a Gateway,
    route: &'a Route,
    /// The headers that each of them has.
    headers: HeaderMap,
    address: Option<std::net::IpAddr>,
    /// The connection that they come over.
    origin: Option<Origin>,
    /// Response from which the next turn can continue.
    last: Option<LastResponse>,
}

impl Turns<'_> {
    /// Answers messages one after another; returns the reason for the end.
    async fn serve(mut self, connection: &mut CustomerSocket<'_>) -> EndReason {
        let _open = self.gateway.metrics.websocket();
        loop {
            self.origin.as_ref().inspect(|origin| origin.rest());
            let is_funded = self.is_funded(connection);
            let message = match connection.next_message(&mut self.last, is_funded).await {
                Ok(message) => message,
                Err(ended) => return ended,
            };
            if !self.origin.as_ref().is_none_or(Origin::resume) {
                return EndReason::away();
            }
            if let Err(ended) = self.answer(connection, message).await {
                return ended;
            }
        }
    }

    /// Answers one message of the customer.
    async fn answer(
        &mut self,
        connection: &mut CustomerSocket<'_>,
        message: Bytes,
    ) -> Result<(), EndReason> {
        let answer = self.gateway.offload.run(message.len(), || self.read(&message)).await;
        drop(message);
        match answer {
            Err(error) => {
                connection.holds(0, self.in_mind());
                connection.send(refusal(&error)).await
            }
            Ok(ClientMessage::Nothing) => Ok(()),
            Ok(ClientMessage::WarmUp(prompt)) => {
                let id = format!("resp_{}", plain(RequestId::new()));
                for event in events::warmed_up(&id) {
                    connection.send(event).await?;
                }
                self.remember(connection, id, prompt)
            }
            Ok(ClientMessage::Turn { body, prompt }) => {
                let prompt =
                    Some(prompt).filter(|prompt| prompt.bytes() <= connection.in_mind_max());
                // The body is counted where its request reads it.
                connection.holds(self.beside(prompt.as_ref()), self.in_mind());
                self.turn(connection, body, prompt).await
            }
        }
    }

    /// True if the account of the connection has any money.
    fn is_funded(&self, connection: &CustomerSocket<'_>) -> bool {
        let available = |account| self.gateway.ledger.available_and_held(account).0;
        connection.account().is_none_or(|account| available(account) > Nanousd::ZERO)
    }

    fn read(&self, message: &[u8]) -> Result<ClientMessage, GatewayError> {
        let snapshot = self.gateway.config.load();
        let thinks = |name: &str| snapshot.model(name).is_some_and(|model| model.limits.reasoning);
        ClientMessage::read(message, self.last.as_ref(), self.route.json_values_max, thinks)
    }

    /// The request for a turn.
    fn request(&self, body: Bytes) -> LoopbackRequest {
        LoopbackRequest {
            method: Method::POST,
            path: self.route.path.clone(),
            headers: self.headers.clone(),
            body,
            address: self.address,
            origin: self.origin.clone(),
        }
    }

    /// Makes the request of a turn, and relays its response.
    async fn turn(
        &mut self,
        connection: &mut CustomerSocket<'_>,
        body: Bytes,
        prompt: Option<TurnHistory>,
    ) -> Result<(), EndReason> {
        let answer = self.gateway.loopback.send(self.request(body));
        let mut reply = match connection.while_open(answer).await? {
            Ok(reply) => reply,
            Err(error) => return connection.send(refusal(&error)).await,
        };
        if let Some(limits) = events::beside(&reply.headers) {
            connection.send(limits).await?;
        }
        if reply.status != 200 || is_json(&reply.headers) {
            return whole(connection, reply).await;
        }
        let mut turn = TurnEvents::new();
        if prompt.is_none() {
            turn.forget();
        }
        let of_prompt = self.beside(prompt.as_ref());
        loop {
            let piece = match connection.while_open(reply.chunk()).await? {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) => {
                    if turn.end().is_none() {
                        connection.send(refusal(&error)).await?;
                    }
                    return Ok(());
                }
            };
            let outgoing = match turn.take(&piece) {
                Ok(outgoing) => outgoing,
                Err(error) => return connection.send(refusal(&error)).await,
            };
            let of_turn = of_prompt + turn.len() + events::bytes_to_send(&outgoing);
            if !connection.holds(of_turn, self.in_mind()) {
                turn.forget();
                connection.holds(of_prompt + turn.len(), self.in_mind());
            }
            for one in outgoing {
                match one {
                    Outgoing::Event(event) => connection.send(event).await?,
                    Outgoing::Alive => connection.ping().await?,
                }
            }
        }
        match turn.end() {
            Some(ResponseEnd::Done(id)) => {
                let output = prompt.zip(turn.output());
                let Some(conversation) = output.map(|(prompt, items)| prompt.followed_by(items))
                else {
                    return Err(self.forget(connection));
                };
                let id = id.clone();
                drop(turn);
                return self.remember(connection, id, conversation);
            }
            Some(ResponseEnd::Failed) => {}
            None => {
                let message =
                    "The answer ended before it was whole. What was delivered is charged.";
                let error = GatewayError::new(ErrorKind::BadGateway, message);
                return connection.send(refusal(&error)).await;
            }
        }
        Ok(())
    }

    /// Memory of the remembered conversation, in bytes.
    fn in_mind(&self) -> usize {
        self.last.as_ref().map_or(0, LastResponse::bytes)
    }

    /// Memory of `prompt` beyond the remembered conversation, in bytes.
    fn beside(&self, prompt: Option<&TurnHistory>) -> usize {
        let last = self.last.as_ref().map(|last| &last.conversation);
        prompt.map_or(0, |prompt| prompt.bytes_beside(last))
    }

    /// Stores the response, so that the next turn can continue from it, unless the memory budget has no room
    /// or the next turn would exceed the limit of a request.
    fn remember(
        &mut self,
        connection: &mut CustomerSocket<'_>,
        id: String,
        conversation: TurnHistory,
    ) -> Result<(), EndReason> {
        let bytes = conversation.bytes();
        if bytes > connection.in_mind_max() {
            return Err(self.forget(connection));
        }
        self.last = Some(LastResponse { id, conversation });
        if connection.holds(0, bytes) { Ok(()) } else { Err(self.forget(connection)) }
    }

    /// Nothing can go on from the response that was just sent: the connection ends, for the next turn on
    /// another one to bring the conversation along.
    fn forget(&mut self, connection: &mut CustomerSocket<'_>) -> EndReason {
        self.last = None;
        connection.holds(0, 0);
        EndReason::away()
    }
}

/// Passes on an answer that is no stream: a refusal, or a response as one document.
async fn whole(
    connection: &mut CustomerSocket<'_>,
    mut reply: LoopbackResponse,
) -> Result<(), EndReason> {
    let mut body = BytesMut::new();
    while let Ok(Some(piece)) = connection.while_open(reply.chunk()).await? {
        if body.len() + piece.len() > refused::BYTES_MAX {
            let message = "The answer is no stream, and too large for a WebSocket. Ask over HTTP.";
            return connection
                .send(refusal(&GatewayError::new(ErrorKind::BadGateway, message)))
                .await;
        }
        body.extend_from_slice(&piece);
    }
    if reply.status == 200 {
        let event = [br#"{"type":"response.completed","response":"#, &body[..], b"}"].concat();
        return connection.send(event.into()).await;
    }
    let limits = [RETRY_AFTER, X_REQUEST_ID].map(|name| {
        let value = reply.headers.get(&name).and_then(|value| value.to_str().ok());
        (name, value.map(str::to_owned))
    });
    let limits: Vec<(&str, String)> =
        limits.iter().filter_map(|(name, value)| Some((name.as_str(), value.clone()?))).collect();
    connection.send(events::error(reply.status, &body, &limits)).await
}

/// The message for an error of the gateway's own.
fn refusal(error: &GatewayError) -> Bytes {
    let body = Envelope::Responses.body(RequestId::new(), error).to_string();
    events::error(status::status_of(error), body.as_bytes(), &[])
}

/// The letters and digits of an id.
fn plain(id: RequestId) -> String {
    id.to_string().replace(|letter: char| !letter.is_ascii_alphanumeric(), "")
}
