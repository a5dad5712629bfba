//! Slots of requests in flight. A request without one is refused at once, so that those with one do not slow
//! down.
//!
//! Customers have slots of their own, of which each account has a share; a request takes one with a valid key.
//! Unauthenticated requests, and those of the console, have few slots and little time, and take none of
//! the customers'.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::config::snapshot::IntakeLimits;
use crate::error::{ErrorKind, GatewayError};
use crate::forwarded as client;
use crate::gateway::listen::connection_table::SharedBounds;
use crate::gateway::listen::origin::Origin;
use crate::limits::{
    self, Count, Holders, InUse, InUseGuard, PoolRule, PooledUnits, UnitPool, share_of,
};
use crate::metrics::{Metrics, Pool, Shed};

/// `Retry-After` of a refusal: slots become free with every answer.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Time that the reads of an account wait for each other before one is refused.
const READ_WAIT: Duration = Duration::from_secs(2);

/// All request slots of this process, over all listeners.
pub(crate) struct RequestSlots {
    customers: Count,
    unauthenticated: Count,
    /// Permits for connections with a client's request in flight.
    connections: Arc<UnitPool>,
    /// The bytes of customers' streams over HTTP/2.
    stream_bytes: Arc<UnitPool>,
    /// Requests in flight of unauthenticated clients, counted by client network.
    networks: Holders<Option<IpAddr>>,
    /// Usage of each account.
    accounts: Arc<limits::Limiter>,
    metrics: Arc<Metrics>,
}

/// A request's slot, given back on drop.
pub(crate) struct RequestSlot {
    slots: Arc<RequestSlots>,
    pool: Pool,
    holder: Arc<InUse>,
    /// Permit of the account's share of connections.
    _connection: Option<Arc<PooledUnits>>,
    /// The account's share of HTTP/2 streams.
    _stream: Option<PooledUnits>,
}

impl RequestSlot {
    /// Usage of the account, for a customer's request.
    pub(crate) fn account(&self) -> Option<&Arc<InUse>> {
        (self.pool == Pool::Customers).then_some(&self.holder)
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.holder.requests.give_back(1);
        self.slots.pool(self.pool).give_back(1);
        self.slots.metrics.slot_left(self.pool);
    }
}

impl RequestSlots {
    /// Slots of which all are free.
    pub(crate) fn new(accounts: Arc<limits::Limiter>, metrics: Arc<Metrics>) -> Arc<Self> {
        let networks = Holders::new();
        let (customers, unauthenticated) = (Count::default(), Count::default());
        let (connections, stream_bytes) = (Arc::default(), Arc::default());
        Arc::new(Self {
            customers,
            unauthenticated,
            connections,
            stream_bytes,
            networks,
            accounts,
            metrics,
        })
    }

    fn pool(&self, pool: Pool) -> &Count {
        match pool {
            Pool::Customers => &self.customers,
            Pool::Unauthenticated => &self.unauthenticated,
        }
    }

    /// A slot for a request of this account.
    ///
    /// # Errors
    /// `Overloaded` when there is none, and `RateLimited` when the account has its share.
    pub(crate) fn customer(
        self: &Arc<Self>,
        account: u64,
        limits: &IntakeLimits,
    ) -> Result<RequestSlot, GatewayError> {
        // A share of what is free: it shrinks as others take theirs, so no account has everything.
        let free = limits.requests_in_flight_max.saturating_sub(self.customers.taken());
        let of_account = share_of(free, limits.per_account.requests_in_flight_percent);
        let (max, holder) = (limits.requests_in_flight_max, self.accounts.account(account));
        self.enter(Pool::Customers, holder, max, of_account).map_err(|is_all| {
            if is_all {
                let message = "Too many requests are in flight. Try again shortly.";
                return overloaded(&self.metrics, Shed::InFlight, message);
            }
            let message = format!(
                "This account may have {of_account} requests in flight at the moment. Send fewer at \
                 one time, and try again when one of them has ended."
            );
            self.too_many(Shed::AccountInFlight, message)
        })
    }

    /// Attaches to a slot the account's share of connections and, over HTTP/2, of the bytes of streams.
    ///
    /// # Errors
    /// `RateLimited` when the account has its share of either.
    pub(crate) fn attach_shares(
        &self,
        mut slot: RequestSlot,
        account: u64,
        origin: Option<&Origin>,
        limits: &IntakeLimits,
        bounds: SharedBounds,
        stream_bytes: Option<usize>,
    ) -> Result<RequestSlot, GatewayError> {
        let (in_use, percent) = (&slot.holder, limits.per_account.requests_in_flight_percent);
        // With fewer connections than slots, one account could take all connections within its share of slots.
        if bounds.connections < limits.requests_in_flight_max {
            let rule = PoolRule { max: bounds.connections, percent };
            let enter =
                || self.connections.enter(Some(in_use), |in_use| &in_use.connections, 1, rule).ok();
            let connection = origin.map(|origin| origin.share(account, enter));
            if connection.as_ref().is_some_and(Option::is_none) {
                let message = format!(
                    "This account may have requests in flight on {} connections at the moment. Send \
                     fewer at one time, or several over one connection with HTTP/2.",
                    self.connections.share(rule)
                );
                return Err(self.too_many(Shed::AccountConnections, message));
            }
            slot._connection = connection.flatten();
        }
        if let Some(bytes) = stream_bytes {
            let rule = PoolRule { max: bounds.stream_bytes, percent };
            let entered =
                self.stream_bytes.enter(Some(in_use), |in_use| &in_use.stream_bytes, bytes, rule);
            let entered = entered.map_err(|_| {
                let message = "This account has as many streams over HTTP/2 in flight as one \
                               account may have at the moment. Send fewer at one time.";
                self.too_many(Shed::AccountConnections, message.to_owned())
            });
            slot._stream = Some(entered?);
        }
        Ok(slot)
    }

    /// A slot for a request from this address that has shown no valid key.
    ///
    /// # Errors
    /// `RateLimited` when there is none, or the address has its share.
    pub(crate) fn unauthenticated(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        limits: &IntakeLimits,
    ) -> Result<RequestSlot, GatewayError> {
        let rules = &limits.unauthenticated;
        let (max, max_of_one) = (rules.requests_in_flight_max, rules.per_address_max);
        let holder = self.networks.holder(address.map(client::network));
        self.enter(Pool::Unauthenticated, holder, max, max_of_one).map_err(|is_all| {
            let (shed, whence) = match is_all {
                true => (Shed::Unauthenticated, ""),
                false => (Shed::Address, " from your address"),
            };
            let message = format!(
                "Too many requests without a valid API key{whence} are in flight. Try again shortly."
            );
            self.shed(shed);
            GatewayError::new(ErrorKind::RateLimited, message).retry_after(RETRY_DELAY)
        })
    }

    /// Takes a slot; the error is true if all are in use, and false if the holder has reached its share.
    fn enter(
        self: &Arc<Self>,
        pool: Pool,
        holder: Arc<InUse>,
        max_of_all: usize,
        max_of_one: usize,
    ) -> Result<RequestSlot, bool> {
        if !self.pool(pool).take(1, max_of_all) {
            return Err(true);
        }
        if !holder.requests.take(1, max_of_one) {
            // The pool's slot was taken a moment ago; the holder has its own bound.
            self.pool(pool).give_back(1);
            return Err(false);
        }
        self.metrics.slot_taken(pool);
        Ok(RequestSlot { slots: Arc::clone(self), pool, holder, _connection: None, _stream: None })
    }

    /// Takes a slot for waiting for a task, for the account of `slot`.
    ///
    /// # Errors
    /// `RateLimited` when the account has its share of them.
    pub(crate) fn waiting(
        &self,
        slot: Option<&RequestSlot>,
        limits: &IntakeLimits,
    ) -> Result<Option<InUseGuard>, GatewayError> {
        let Some(account) = slot.and_then(RequestSlot::account) else { return Ok(None) };
        let max = limits.per_account.waiting_max;
        account.enter(|in_use| &in_use.waiting, max).map(Some).ok_or_else(|| {
            let message = format!(
                "{max} requests of this account wait for the end of their task, all that one \
                 account may have here. Ask again without `wait`, and read the task by its id."
            );
            self.too_many(Shed::AccountWaiting, message)
        })
    }

    /// Takes a slot for an open WebSocket, for the account of `slot`.
    ///
    /// # Errors
    /// `RateLimited` when the account has its share of them.
    pub(crate) fn websocket(
        &self,
        slot: Option<&RequestSlot>,
        limits: &IntakeLimits,
    ) -> Result<Option<InUseGuard>, GatewayError> {
        let Some(account) = slot.and_then(RequestSlot::account) else { return Ok(None) };
        let max = limits.per_account.requests_in_flight_max;
        account.enter(|in_use| &in_use.websockets, max).map(Some).ok_or_else(|| {
            let message = format!(
                "This account has {max} WebSockets open, all that one account may have here. Close \
                 those that are not needed."
            );
            self.too_many(Shed::AccountConnections, message)
        })
    }

    /// Waits for a permit for a large read, limited per account.
    ///
    /// # Errors
    /// `RateLimited` when the account's other reads leave it none in time.
    pub(crate) async fn read_in_turn(
        &self,
        slot: Option<&RequestSlot>,
        limits: &IntakeLimits,
    ) -> Result<Option<InUseGuard>, GatewayError> {
        let Some(account) = slot.and_then(RequestSlot::account) else { return Ok(None) };
        let max = limits.per_account.reads_max;
        account.read_in_turn(max, READ_WAIT).await.map(Some).ok_or_else(|| {
            let message = format!(
                "{max} such reads of this account are under way, all that one account may have \
                 here. Ask one after the other."
            );
            self.too_many(Shed::AccountReads, message)
        })
    }

    fn too_many(&self, shed: Shed, message: String) -> GatewayError {
        too_many(&self.metrics, shed, message)
    }

    fn shed(&self, reason: Shed) {
        self.metrics.request_shed(reason);
    }
}

/// The refusal of a request whose account has used its share.
pub(crate) fn too_many(metrics: &Metrics, shed: Shed, message: String) -> GatewayError {
    metrics.request_shed(shed);
    let error = GatewayError::new(ErrorKind::RateLimited, message);
    error.code("ConcurrencyExceeded").retry_after(RETRY_DELAY)
}

/// The refusal of a request for which the gateway has no room.
pub(crate) fn overloaded(metrics: &Metrics, shed: Shed, message: &'static str) -> GatewayError {
    metrics.request_shed(shed);
    GatewayError::new(ErrorKind::Overloaded, message).retry_after(RETRY_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, Sources};

    fn slots() -> Arc<RequestSlots> {
        RequestSlots::new(Arc::default(), Arc::new(Metrics::new()))
    }

    /// The bounds as they are shipped, with fewer slots.
    fn bounds() -> IntakeLimits {
        let loaded = crate::config::load(&Sources::Embedded, &Overrides::default());
        let mut limits = loaded.expect("the shipped files").0.limits;
        limits.requests_in_flight_max = 3;
        limits.per_account.requests_in_flight_percent = 60;
        limits.unauthenticated.requests_in_flight_max = 3;
        limits.unauthenticated.per_address_max = 2;
        limits
    }

    #[test]
    fn places_are_bounded_for_all_and_for_each_and_given_back() {
        let (slots, limits) = (slots(), bounds());
        let kind = |account| slots.customer(account, &limits).map_err(|error| error.kind);
        let first = [kind(1), kind(1)];
        assert!(first.iter().all(Result::is_ok), "two for one account");
        assert_eq!(kind(1).err(), Some(ErrorKind::RateLimited), "its share");
        let other = kind(2);
        assert!(other.is_ok(), "the third for another");
        assert_eq!(kind(3).err(), Some(ErrorKind::Overloaded), "all are taken");
        drop((first, other));
        assert_eq!(slots.customers.taken(), 0, "all are free again");
        assert!(kind(1).is_ok());
    }

    #[test]
    fn unauthenticated_requests_take_no_slots_from_customers() {
        let (slots, limits) = (slots(), bounds());
        let from = |address: &str| {
            let address = address.parse().expect("an address");
            slots.unauthenticated(Some(address), &limits).map_err(|error| error.message)
        };
        let names_the_address = |entered: Result<RequestSlot, std::borrow::Cow<'static, str>>| {
            entered.err().unwrap_or_default().contains("from your address")
        };
        let taken = [from("2001:db8::1"), from("2001:db8::2")];
        assert!(taken.iter().all(Result::is_ok), "two for one network");
        assert!(names_the_address(from("2001:db8::3")), "the network has its share");
        let other = from("2001:db8:0:1::1");
        assert!(other.is_ok(), "another network");
        assert!(!names_the_address(from("192.0.2.1")), "all are taken");
        let customers: Vec<_> = (0..3).map(|account| slots.customer(account, &limits)).collect();
        assert!(customers.iter().all(Result::is_ok), "customers notice nothing");
        drop(taken);
        assert!(from("192.0.2.1").is_ok(), "free again");
    }
}
