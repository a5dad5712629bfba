//! The limits of one key, account or model, and what a request takes of several of them at a time.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use governor::clock::Clock as _;
use governor::nanos::Nanos;
use parking_lot::{RwLock, RwLockReadGuard};

use super::bucket::{Bucket, Clock};
use super::{Limit, Permit, Rates, Refused, Scope, Standing, Wait};

/// What was used by one subject.
#[derive(Debug)]
pub(super) struct Entry {
    clock: Clock,
    /// Written when a limit changes, read by everybody else.
    buckets: RwLock<Buckets>,
    in_flight: AtomicU32,
}

#[derive(Debug)]
struct Buckets {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
}

impl Buckets {
    fn are_of(&self, rates: &Rates) -> bool {
        limit_of(&self.requests) == rates.requests_per_minute
            && limit_of(&self.tokens) == rates.tokens_per_minute
    }
}

fn limit_of(bucket: &Option<Bucket>) -> Option<NonZeroU32> {
    bucket.as_ref().map(Bucket::limit)
}

impl Entry {
    pub(super) fn new(clock: &Clock, rates: &Rates) -> Self {
        let bucket = |limit| Bucket::new(limit, clock);
        let buckets = Buckets {
            requests: rates.requests_per_minute.map(bucket),
            tokens: rates.tokens_per_minute.map(bucket),
        };
        Self { clock: clock.clone(), buckets: RwLock::new(buckets), in_flight: AtomicU32::new(0) }
    }

    /// Whether a new entry would say the same.
    pub(super) fn is_idle(&self) -> bool {
        let buckets = self.buckets.read();
        let all = [&buckets.requests, &buckets.tokens];
        let now = self.clock.now();
        self.in_flight.load(Ordering::Acquire) == 0
            && all.into_iter().flatten().all(|bucket| bucket.is_full(now))
    }

    /// Counts a request as over.
    pub(super) fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    /// A request for which `counted` tokens were taken has used `tokens`.
    pub(super) fn correct(&self, counted: u64, tokens: u64) {
        let buckets = self.buckets.read();
        let Some(bucket) = &buckets.tokens else { return };
        if tokens >= counted {
            bucket.charge(tokens - counted, self.clock.now());
        } else {
            bucket.give_back(counted - tokens);
        }
    }

    /// The buckets for these limits. One whose limit is another now keeps what was used of it.
    fn buckets(&self, rates: &Rates) -> RwLockReadGuard<'_, Buckets> {
        let buckets = self.buckets.read();
        if buckets.are_of(rates) {
            return buckets;
        }
        drop(buckets);
        let mut buckets = self.buckets.write();
        let resize = |bucket: &mut Option<Bucket>, limit: Option<NonZeroU32>| {
            if limit_of(bucket) != limit {
                *bucket = limit.map(|limit| match bucket {
                    Some(bucket) => bucket.resized(limit),
                    None => Bucket::new(limit, &self.clock),
                });
            }
        };
        resize(&mut buckets.requests, rates.requests_per_minute);
        resize(&mut buckets.tokens, rates.tokens_per_minute);
        parking_lot::RwLockWriteGuard::downgrade(buckets)
    }

    /// Adds how its limits stand.
    fn tell(&self, standing: &mut Standing, now: Nanos) {
        let buckets = self.buckets.read();
        let gauge = |bucket: &Option<Bucket>| bucket.as_ref().map(|bucket| bucket.gauge(now));
        Standing::nearest(&mut standing.requests, gauge(&buckets.requests));
        Standing::nearest(&mut standing.tokens, gauge(&buckets.tokens));
    }

    /// Counts one more request, unless there are `limit` of them already.
    fn enter(&self, limit: Option<NonZeroU32>) -> bool {
        let enter = |count: u32| {
            let is_free = limit.is_none_or(|limit| count < limit.get());
            is_free.then(|| count.saturating_add(1))
        };
        self.in_flight.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter).is_ok()
    }
}

/// A request that is being let through, or not.
pub(super) struct Taking {
    tokens: Option<u64>,
    taken: Vec<Taken>,
    refused: Option<Refused>,
}

/// What was taken of one subject.
struct Taken {
    entry: Arc<Entry>,
    request: bool,
    tokens: bool,
    place: bool,
}

impl Taking {
    pub(super) fn new(tokens: Option<u64>) -> Self {
        Self { tokens, taken: Vec::with_capacity(3), refused: None }
    }

    /// Takes what the request needs of one subject. After a refusal the others are asked all the
    /// same: the customer is told the longest wait.
    pub(super) fn add(&mut self, scope: Scope, entry: Arc<Entry>, rates: &Rates) {
        let mut taken = Taken { entry, request: false, tokens: false, place: false };
        {
            let buckets = taken.entry.buckets(rates);
            if let Some(bucket) = &buckets.requests {
                let wait = bucket.take(1).err();
                taken.request = wait.is_none();
                self.refuse(scope, Limit::Requests, bucket.limit(), wait);
            }
            if let Some((bucket, tokens)) = buckets.tokens.as_ref().zip(self.tokens) {
                let wait = bucket.take(tokens).err();
                taken.tokens = wait.is_none();
                self.refuse(scope, Limit::Tokens, bucket.limit(), wait);
            }
        }
        taken.place = taken.entry.enter(rates.concurrent_requests);
        if let Some(limit) = rates.concurrent_requests.filter(|_| !taken.place) {
            self.refuse(scope, Limit::Concurrency, limit, Some(Wait::UntilOneEnds));
        }
        self.taken.push(taken);
    }

    /// What was taken, or nothing of it.
    pub(super) fn finish(self) -> Result<Permit, Refused> {
        let Self { tokens, taken, refused } = self;
        if refused.is_some() {
            taken.iter().for_each(|taken| taken.give_back(tokens));
        }
        let mut standing = Standing::default();
        if let Some(first) = taken.first() {
            // Read once, and behind the decisions: a bucket says less than it has left to an earlier
            // clock.
            let now = first.entry.clock.now();
            taken.iter().for_each(|taken| taken.entry.tell(&mut standing, now));
        }
        if let Some(refused) = refused {
            return Err(Refused { standing, ..refused });
        }
        let entries = taken.into_iter().map(|taken| taken.entry).collect();
        Ok(Permit { entries, tokens, in_flight: true, standing })
    }

    fn refuse(&mut self, scope: Scope, limit: Limit, value: NonZeroU32, wait: Option<Wait>) {
        let Some(wait) = wait else { return };
        if self.refused.is_none_or(|refused| refused.wait < wait) {
            let (value, standing) = (value.get(), Standing::default());
            self.refused = Some(Refused { scope, limit, value, wait, standing });
        }
    }
}

impl Taken {
    fn give_back(&self, tokens: Option<u64>) {
        if self.place {
            self.entry.leave();
        }
        let buckets = self.entry.buckets.read();
        if let Some(bucket) = buckets.requests.as_ref().filter(|_| self.request) {
            bucket.give_back(1);
        }
        if let Some((bucket, tokens)) = buckets.tokens.as_ref().zip(tokens).filter(|_| self.tokens)
        {
            bucket.give_back(tokens);
        }
    }
}
