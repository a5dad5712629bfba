//! Division of the process's file descriptors among their uses.

/// Connections of the admin address at most. Operators, probes and Prometheus need a handful.
const ADMIN_MAX: u64 = 256;
/// Minimum number of descriptors: with 256, the admin address still answers.
const ADMIN_MIN: u64 = 16;
/// Listeners, the ledger and its next segment, the request log, timers and pipes: some 50. Look-ups of
/// names, webhooks and questions about tasks take the rest.
const KEPT: u64 = 96;
/// Maximum number of idle upstream connections.
const IDLE_UPSTREAM_MAX: u64 = 512;
/// Customers' connections at most, however many descriptors there are: idle ones take 20 KiB each,
/// 400 MiB together.
const CUSTOMERS_MAX: u64 = 20_000;
/// Streams over HTTP/2 at most: at 32 KiB each, 640 MiB.
const STREAMS_MAX: u64 = 20_000;

/// File descriptors for each use. Their sum is below the process's limit, so that no use can exhaust
/// another's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Connections of the admin address.
    pub admin: usize,
    /// Customers' connections. As many are left for the upstreams of those over HTTP/1.1.
    pub customers: usize,
    /// Streams over HTTP/2, each of which may need a connection to an upstream.
    pub streams: usize,
    /// Unused connections to upstreams.
    pub idle_upstream: usize,
}

impl Descriptors {
    /// Calls to upstreams at one time: one for each connection and each stream of customers.
    #[must_use]
    pub fn upstream_calls(&self) -> usize {
        self.customers + self.streams
    }

    /// Shares of `limit` descriptors.
    #[must_use]
    pub fn from_limit(limit: u64) -> Self {
        let admin = (limit / 16).clamp(ADMIN_MIN, ADMIN_MAX);
        let usable = limit.saturating_sub(KEPT + admin).max(8);
        let idle_upstream = (usable / 8).min(IDLE_UPSTREAM_MAX);
        let rest = usable - idle_upstream;
        let customers = (rest / 5 * 2).clamp(2, CUSTOMERS_MAX);
        let streams = rest.saturating_sub(2 * customers).clamp(1, STREAMS_MAX);
        let count = |share: u64| usize::try_from(share).unwrap_or(usize::MAX);
        Self {
            admin: count(admin),
            customers: count(customers),
            streams: count(streams),
            idle_upstream: count(idle_upstream),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_leave_something_for_the_ledger() {
        for limit in [256, 1024, 4096, 20_000, 65_536, 1_048_576, u64::MAX] {
            let Descriptors { admin, customers, streams, idle_upstream } =
                Descriptors::from_limit(limit);
            let all = admin + 2 * customers + streams + idle_upstream;
            let all = u64::try_from(all).expect("a number");
            assert!(all + KEPT <= limit, "{all} of {limit}, and {KEPT} are kept");
            assert!(customers >= 40, "{customers} customers of {limit}");
        }
        assert_eq!(Descriptors::from_limit(u64::MAX).customers, 20_000);
        assert!(Descriptors::from_limit(0).customers > 0, "some, whatever the limit");
    }
}
