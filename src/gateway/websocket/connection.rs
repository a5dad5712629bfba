//! One customer's WebSocket: its bytes, its memory, its time.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pingora_proxy::Session;
use tungstenite::protocol::frame::coding::CloseCode;

use super::events;
use super::frames::{FrameError, FrameReader, PeerMessage};
use super::turn::LastResponse;
use crate::gateway::listen::deadline::Deadline;
use crate::gateway::receive::body::ReadLimits;
use crate::gateway::wire::memory::budget::{BodyBudget, BudgetShare};
use crate::gateway::wire::memory::idle::IdleState;
use crate::ledger::AccountId;

/// Time that a connection may wait for its next message. Clients open another one when they need it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Lifetime of a connection: an hour, as at OpenAI, so that clients can handle its end. They reconnect to
/// another gateway, where there are several, or to this one with its current configuration.
const OPEN_MAX: Duration = Duration::from_secs(3600);
/// Messages that may wait while one is answered: clients send the next one when they have an answer.
const WAITING_MAX: usize = 16;
/// Time for the peer's close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of a message that may still come then: they are not counted.
const CLOSING_BYTES_MAX: usize = 64 * 1024;

/// Reason for which a connection ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The customer has closed it, or is gone.
    Gone,
    /// Closed by the gateway, with a reason.
    Closed(CloseCode, &'static str),
}

impl EndReason {
    /// The gateway is about to stop, or has no room for connections without a request.
    pub(super) fn away() -> Self {
        Self::Closed(CloseCode::Away, "The gateway closes connections. Open another one.")
    }
}

/// A customer's WebSocket, from the 101 until it is closed.
pub(super) struct CustomerSocket<'a> {
    session: &'a mut Session,
    frames: FrameReader,
    /// Messages that wait for their turn.
    waiting: VecDeque<Bytes>,
    /// Memory of the current turn, in bytes.
    of_turn: usize,
    /// Memory of the conversation that the next turn can continue, in bytes.
    in_mind: usize,
    share: BudgetShare,
    limits: ReadLimits,
    deadline: Arc<Deadline>,
    opened: Instant,
    /// The process is shutting down: no more messages are read, and the current turn is told so.
    is_deaf: bool,
}

impl<'a> CustomerSocket<'a> {
    /// Wraps an upgraded session.
    pub(super) fn new(
        session: &'a mut Session,
        budget: &Arc<BodyBudget>,
        limits: ReadLimits,
        deadline: Arc<Deadline>,
    ) -> Self {
        // How long a message may take is looked to here.
        session.set_read_timeout(None);
        Self {
            session,
            frames: FrameReader::of_customer(limits.body_bytes_max),
            waiting: VecDeque::new(),
            of_turn: 0,
            in_mind: 0,
            share: limits.share(budget),
            limits,
            deadline,
            opened: Instant::now(),
            is_deaf: false,
        }
    }

    /// The next message. Until it has come the connection is idle: what the next turn would go on from,
    /// `last`, is evicted where a body finds no room, of accounts that are not funded first, and then the
    /// connection is closed. Clients open another one and send the conversation: where their response were
    /// unknown instead, Codex would give up its turn.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn next_message(
        &mut self,
        last: &mut Option<LastResponse>,
        is_funded: bool,
    ) -> Result<Bytes, EndReason> {
        self.of_turn = 0;
        self.in_mind = last.as_ref().map_or(0, LastResponse::bytes);
        // Nothing is left of the last message, whatever came of it. A share can always shrink.
        let _has_room = self.resize();
        self.share.set_funded(is_funded);
        let idle = last.take().map(|last| {
            let share = self.share.split(std::mem::take(&mut self.in_mind));
            share.keep(last)
        });
        let message = self.message(idle.as_ref()).await?;
        if let Some(idle) = idle {
            let (kept, share) = idle.take().ok_or_else(EndReason::away)?;
            self.in_mind = share.bytes();
            self.share.merge(share);
            *last = Some(kept);
        }
        Ok(message)
    }

    async fn message(
        &mut self,
        idle: Option<&IdleState<LastResponse>>,
    ) -> Result<Bytes, EndReason> {
        let mut since = Instant::now();
        loop {
            if let Some(message) = self.waiting.pop_front() {
                self.of_turn = message.len();
                return self.in_time().await.map(|()| message);
            }
            if self.is_deaf {
                return Err(EndReason::away());
            }
            // A message that has begun must be whole in time.
            let was_within = self.frames.is_within_message();
            let time = if was_within { self.limits.timeout } else { IDLE_TIMEOUT };
            let until = (since + time).min(self.opened + OPEN_MAX);
            let until = tokio::time::Instant::from_std(until);
            let approached = self.deadline.approached();
            let evicted = async {
                match idle {
                    Some(idle) => idle.evicted().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased; // what has come is answered
                read = self.session.read_request_body() => self.take(read).await?,
                () = approached => return Err(EndReason::away()),
                () = evicted => return Err(EndReason::away()),
                () = tokio::time::sleep_until(until) => return Err(self.too_late().await),
            }
            if !was_within && self.frames.is_within_message() {
                since = Instant::now();
            }
        }
    }

    /// Check that the connection may have another turn, or say why not.
    async fn in_time(&mut self) -> Result<(), EndReason> {
        if self.opened.elapsed() < OPEN_MAX { Ok(()) } else { Err(self.too_late().await) }
    }

    /// Waits for the deadline, and returns the reason to close.
    async fn too_late(&mut self) -> EndReason {
        if self.opened.elapsed() >= OPEN_MAX {
            // The code and the words that clients of OpenAI's know.
            let body = br#"{"error":{"type":"invalid_request_error","code":"websocket_connection_limit_reached","message":"Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue.","param":null}}"#;
            return match self.send(events::error(400, body, &[])).await {
                Ok(()) => EndReason::Closed(CloseCode::Normal, "It was open for an hour."),
                Err(ended) => ended,
            };
        }
        match self.frames.is_within_message() {
            false => EndReason::Closed(CloseCode::Normal, "Nothing has come for a while."),
            true => EndReason::Closed(CloseCode::Policy, "The message did not arrive in time."),
        }
    }

    /// Run `work` and read the connection beside it, so that the customer's leaving ends both.
    ///
    /// # Errors
    /// Why the connection has ended meanwhile.
    pub(super) async fn while_open<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, EndReason> {
        let mut work = pin!(work);
        loop {
            if self.is_deaf {
                return Ok(work.await);
            }
            tokio::select! {
                biased; // what is there is passed on, even to one who is about to leave
                done = &mut work => return Ok(done),
                read = self.session.read_request_body() => self.take(read).await?,
            }
        }
    }

    /// Processes received bytes.
    async fn take(&mut self, read: pingora::Result<Option<Bytes>>) -> Result<(), EndReason> {
        let bytes = match read {
            Ok(Some(bytes)) => bytes,
            Err(_) if self.deadline.is_over() => {
                self.is_deaf = true;
                return Ok(());
            }
            Ok(None) | Err(_) => return Err(EndReason::Gone),
        };
        self.frames.feed(bytes);
        self.resize_for_message()?;
        loop {
            match self.frames.next() {
                Ok(None) => break,
                Ok(Some(PeerMessage::Text(_))) if self.waiting.len() >= WAITING_MAX => {
                    let reason = "Too many messages. Wait for the answer to the last one.";
                    return Err(EndReason::Closed(CloseCode::Policy, reason));
                }
                Ok(Some(PeerMessage::Text(text))) => self.waiting.push_back(text),
                Ok(Some(PeerMessage::Control)) => {}
                Ok(Some(PeerMessage::Close)) => {
                    self.flush().await?;
                    return Err(EndReason::Gone);
                }
                Err(FrameError { code, reason }) => return Err(EndReason::Closed(code, reason)),
            }
        }
        self.resize_for_message()?;
        self.flush().await
    }

    fn resize_for_message(&mut self) -> Result<(), EndReason> {
        let reason = "There is no room for the message. Try again shortly.";
        self.resize().then_some(()).ok_or(EndReason::Closed(CloseCode::Again, reason))
    }

    /// The turn takes `of_turn` bytes, and the connection has so many `in_mind` for the next one; false
    /// where there is no room for them.
    pub(super) fn holds(&mut self, of_turn: usize, in_mind: usize) -> bool {
        (self.of_turn, self.in_mind) = (of_turn, in_mind);
        self.resize()
    }

    /// The account whose connection it is.
    pub(super) fn account(&self) -> Option<AccountId> {
        self.limits.account.as_ref().map(|account| AccountId::from_number(account.number))
    }

    /// The most that the connection may have in mind, in bytes. Enough is left of the account's share for a
    /// message of the largest size and what is made of it: a turn takes its conversation twice, in mind and in
    /// its body, and reading that takes a copy and something for each value.
    pub(super) fn in_mind_max(&self) -> usize {
        let account = self.limits.account.as_ref();
        let share = account.map_or(self.limits.budget_bytes_max, |account| account.bytes_max);
        self.limits.body_bytes_max.min(share / 8)
    }

    /// Adjusts the memory share to what the connection holds; false if the budget has no room.
    fn resize(&mut self) -> bool {
        let waiting = self.waiting.iter().map(Bytes::len);
        let held = [self.frames.held_bytes(), self.of_turn, self.in_mind];
        let bytes = waiting.chain(held).fold(0, usize::saturating_add);
        self.share.resize(bytes, self.limits.budget_bytes_max)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The customer is gone.
    pub(super) async fn send(&mut self, message: Bytes) -> Result<(), EndReason> {
        self.frames.send(message);
        self.flush().await
    }

    /// Shows that the connection is alive.
    ///
    /// # Errors
    /// The customer is gone.
    pub(super) async fn ping(&mut self) -> Result<(), EndReason> {
        self.frames.ping();
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), EndReason> {
        let unsent = self.frames.take_unsent();
        self.write(unsent).await
    }

    async fn write(&mut self, unsent: Bytes) -> Result<(), EndReason> {
        if unsent.is_empty() {
            return Ok(());
        }
        let sent = self.session.write_response_body(Some(unsent), false).await;
        sent.map_err(|_| EndReason::Gone)
    }

    /// Closes the connection, and waits a moment for the peer to close: closing with unread bytes resets the
    /// connection and may lose the last message.
    pub(super) async fn end(mut self, ended: EndReason) {
        let EndReason::Closed(code, reason) = ended else { return };
        self.frames.close(code, reason);
        let unsent = self.frames.take_unsent();
        let is_readable = self.frames.is_between_messages();
        // Before anything waits for the other side: what has come so far is of no use any more, and may be
        // what there was no room for.
        self.frames = FrameReader::of_customer(self.limits.body_bytes_max);
        self.waiting = VecDeque::new();
        self.holds(0, 0);
        if self.write(unsent).await.is_err() {
            return;
        }
        let closed = async {
            while let Ok(Some(bytes)) = self.session.read_request_body().await {
                if !is_readable {
                    // The rest of a message, or nobody knows what, up to the end of the connection.
                    continue;
                }
                self.frames.feed(bytes);
                let is_idle = matches!(self.frames.next(), Ok(None | Some(PeerMessage::Control)));
                if !is_idle || self.frames.held_bytes() > CLOSING_BYTES_MAX {
                    return;
                }
            }
        };
        // Who does not close is closed upon.
        drop(tokio::time::timeout(CLOSE_TIMEOUT, closed).await);
    }
}
