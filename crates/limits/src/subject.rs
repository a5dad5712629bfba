//! The limits of one key, account or model, and what a request takes of several of them at a time.

use std::num::NonZeroU32;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard};

use super::bucket::Clock;
use super::concurrency::{AccountConcurrency, ConcurrencyLimit, ConcurrencyRefusal};
use super::in_use::{InUse, InUseGuard};
use super::metered::MinuteLimit;
use super::share::{ShareGrant, ShareRequest, ShareWait};
use super::{
    EstimatedTokens, Limit, LimitRefusal, LimitStatus, Permit, RateLimitStatus, Rates, Scope,
    Subject, Wait,
};

/// The counters of one subject.
#[derive(Debug)]
pub(super) struct SubjectCounters {
    clock: Clock,
    /// True in a fleet, where other nodes use the same limits.
    is_shared: bool,
    /// True for a key or an account. A model's slot stays in use while an abandoned request continues
    /// upstream.
    frees_slot: bool,
    /// Written when a limit or a share changes, read by everybody else.
    buckets: RwLock<Buckets>,
    concurrency: ConcurrencyLimit,
}

#[derive(Debug)]
struct Buckets {
    requests: Option<MinuteLimit>,
    tokens: Option<MinuteLimit>,
}

impl Buckets {
    fn are_of(&self, rates: &Rates) -> bool {
        limit_of(&self.requests) == rates.requests_per_minute
            && limit_of(&self.tokens) == rates.tokens_per_minute
    }

    fn all(&self) -> impl Iterator<Item = &MinuteLimit> {
        [&self.requests, &self.tokens].into_iter().flatten()
    }
}

fn limit_of(bucket: &Option<MinuteLimit>) -> Option<NonZeroU32> {
    bucket.as_ref().map(MinuteLimit::limit)
}

impl SubjectCounters {
    pub(super) fn new(clock: &Clock, rates: &Rates, scope: Scope, is_shared: bool) -> Self {
        let bucket = |limit| MinuteLimit::new(limit, clock, is_shared);
        let buckets = Buckets {
            requests: rates.requests_per_minute.map(bucket),
            tokens: rates.tokens_per_minute.map(bucket),
        };
        let concurrency = ConcurrencyLimit::new(is_shared.then(|| clock.now_ns()));
        let (clock, frees_slot) = (clock.clone(), scope != Scope::Model);
        Self { clock, is_shared, frees_slot, buckets: RwLock::new(buckets), concurrency }
    }

    /// True if a new entry would behave the same.
    pub(super) fn is_idle(&self) -> bool {
        let buckets = self.buckets.read();
        let now_ns = self.clock.now_ns();
        self.concurrency.is_idle(now_ns) && buckets.all().all(|bucket| bucket.is_idle(now_ns))
    }

    /// Counts a request as over.
    pub(super) fn leave(&self) {
        self.concurrency.leave();
    }

    /// Marks a request as abandoned while it continues upstream. Returns true if its slot is free.
    pub(super) fn orphan(&self) -> bool {
        self.frees_slot && self.concurrency.orphan()
    }

    /// A request whose place was free before its end is over.
    pub(super) fn orphan_end(&self) {
        self.concurrency.orphan_end();
    }

    /// A request for which `counted` tokens were taken has used `tokens`.
    pub(super) fn correct(&self, counted: u64, tokens: u64) {
        let buckets = self.buckets.read();
        // The limit was taken away while the request ran.
        let Some(bucket) = &buckets.tokens else { return };
        if tokens >= counted {
            bucket.charge(tokens - counted, self.clock.now_ns());
        } else {
            bucket.give_back(counted - tokens);
        }
    }

    /// Adds the share requests of this subject.
    pub(super) fn request(&self, subject: &Subject, share_requests: &mut Vec<ShareRequest>) {
        let mut buckets = self.buckets.write();
        let Buckets { requests, tokens } = &mut *buckets;
        share_requests
            .extend(requests.as_mut().and_then(|bucket| bucket.request(subject, Limit::Requests)));
        share_requests
            .extend(tokens.as_mut().and_then(|bucket| bucket.request(subject, Limit::Tokens)));
        drop(buckets);
        share_requests.extend(self.concurrency.request(subject, self.clock.now_ns()));
    }

    /// Applies the grant of a sync. True if something was given back.
    pub(super) fn apply(&self, request: &ShareRequest, grant: &ShareGrant, until_ns: u64) -> bool {
        let mut buckets = self.buckets.write();
        let bucket = match request.kind {
            Limit::Requests => &mut buckets.requests,
            Limit::Tokens => &mut buckets.tokens,
            Limit::Concurrency => return self.concurrency.apply(grant, until_ns, request.is_over),
            // A spending limit is the ledger's, and shared out in another message.
            Limit::Spend => return false,
        };
        bucket.as_mut().is_some_and(|bucket| bucket.apply(grant, until_ns, request.is_over))
    }

    /// True if the next sync should not wait for its interval.
    pub(super) fn is_urgent(&self) -> bool {
        self.concurrency.is_urgent() || self.buckets.read().all().any(MinuteLimit::is_urgent)
    }

    /// The buckets for these limits. One whose limit is another now keeps what was used of it.
    fn buckets(&self, rates: &Rates) -> RwLockReadGuard<'_, Buckets> {
        let buckets = self.buckets.read();
        if buckets.are_of(rates) {
            return buckets;
        }
        // Two requests may come here at once: the second finds nothing to change.
        drop(buckets);
        let mut buckets = self.buckets.write();
        let resize = |bucket: &mut Option<MinuteLimit>, limit: Option<NonZeroU32>| match (
            &mut *bucket,
            limit,
        ) {
            (Some(bucket), Some(limit)) if bucket.limit() != limit => bucket.resize(limit),
            (Some(_), Some(_)) => {}
            (current, limit) => {
                *current = limit.map(|limit| MinuteLimit::new(limit, &self.clock, self.is_shared));
            }
        };
        resize(&mut buckets.requests, rates.requests_per_minute);
        resize(&mut buckets.tokens, rates.tokens_per_minute);
        parking_lot::RwLockWriteGuard::downgrade(buckets)
    }

    /// Adds the state of its limits, as it was right after a request.
    fn add_gauges(&self, standing: &mut RateLimitStatus, remaining: Remaining, now_ns: u64) {
        let buckets = self.buckets.read();
        let gauge = |bucket: &Option<MinuteLimit>, remaining: Option<u32>| {
            let gauge = bucket.as_ref()?.gauge(now_ns);
            Some(LimitStatus { remaining: remaining.unwrap_or(gauge.remaining), ..gauge })
        };
        RateLimitStatus::nearest(
            &mut standing.requests,
            gauge(&buckets.requests, remaining.requests),
        );
        RateLimitStatus::nearest(&mut standing.tokens, gauge(&buckets.tokens, remaining.tokens));
    }

    /// Counts one more request, unless there are `limit` of them already.
    fn enter(&self, limit: Option<NonZeroU32>, progress: ShareWait) -> Result<(), Wait> {
        self.concurrency.enter(limit, || self.clock.now_ns(), progress)
    }

    /// Counts one more request of an account that may have no more than a share of the places.
    fn enter_within_share(
        &self,
        limit: NonZeroU32,
        share: &AccountConcurrency,
        progress: ShareWait,
    ) -> Result<InUseGuard, ConcurrencyRefusal> {
        let now_ns = || self.clock.now_ns();
        self.concurrency.enter_within_share(limit, share, now_ns, progress)
    }
}

/// An admission in progress.
pub(super) struct Taking {
    tokens: Option<EstimatedTokens>,
    progress: ShareWait,
    /// The bound of the account's requests in flight to the model that is added next.
    shared: Option<AccountConcurrency>,
    of_model: Option<InUseGuard>,
    taken: Vec<TakenUnits>,
    refused: Option<LimitRefusal>,
}

/// Units taken from the limits of one subject.
struct TakenUnits {
    entry: Arc<SubjectCounters>,
    request: bool,
    /// The tokens taken; `None` without a token limit.
    tokens: Option<u64>,
    place: bool,
    remaining: Remaining,
}

/// The remaining units of one subject after a request; `None` for a limit that it did not take from.
#[derive(Clone, Copy, Default)]
struct Remaining {
    requests: Option<u32>,
    tokens: Option<u32>,
}

impl Taking {
    pub(super) fn new(tokens: Option<EstimatedTokens>, progress: ShareWait) -> Self {
        let (shared, of_model) = (None, None);
        let taken = Vec::with_capacity(3);
        Self { tokens, progress, shared, of_model, taken, refused: None }
    }

    /// Divides the places of the next added subject, a model, among accounts.
    pub(super) fn share_places(&mut self, of_account: Arc<InUse>, percent: u32) {
        self.shared = Some(AccountConcurrency { of_account, percent });
    }

    /// Charges the request to one subject. After a refusal the other subjects are still checked, so that the
    /// response contains the longest wait.
    pub(super) fn add(&mut self, scope: Scope, entry: Arc<SubjectCounters>, rates: &Rates) {
        let remaining = Remaining::default();
        let mut taken = TakenUnits { entry, request: false, tokens: None, place: false, remaining };
        {
            let buckets = taken.entry.buckets(rates);
            if let Some(bucket) = &buckets.requests {
                let outcome = bucket.take(1, self.progress);
                taken.request = outcome.is_ok();
                taken.remaining.requests = outcome.ok().flatten();
                self.refuse(scope, Limit::Requests, bucket.limit(), outcome.err());
            }
            if let Some((bucket, tokens)) = buckets.tokens.as_ref().zip(self.tokens) {
                let counted = tokens.counted(u64::from(bucket.limit().get()));
                let outcome = bucket.take(counted, self.progress);
                taken.tokens = outcome.is_ok().then_some(counted);
                taken.remaining.tokens = outcome.ok().flatten();
                self.refuse(scope, Limit::Tokens, bucket.limit(), outcome.err());
            }
        }
        taken.place = self.add_place(scope, &taken.entry, rates.concurrent_requests);
        self.taken.push(taken);
    }

    /// Takes a slot. Returns true if there was one.
    fn add_place(
        &mut self,
        scope: Scope,
        entry: &SubjectCounters,
        limit: Option<NonZeroU32>,
    ) -> bool {
        let Some((limit, shared)) = limit.zip(self.shared.take()) else {
            let wait = entry.enter(limit, self.progress).err();
            let has_place = wait.is_none();
            if let Some(limit) = limit {
                self.refuse(scope, Limit::Concurrency, limit, wait);
            }
            return has_place;
        };
        match entry.enter_within_share(limit, &shared, self.progress) {
            Ok(place) => {
                self.of_model = Some(place);
                true
            }
            Err(ConcurrencyRefusal { wait, share }) => {
                // Others have places there: the account is at its own bound.
                let scope = if share.is_some() { Scope::Account } else { scope };
                let (limit, value, standing) =
                    (Limit::Concurrency, limit.get(), RateLimitStatus::default());
                self.refuse_as(LimitRefusal { scope, limit, value, share, wait, standing });
                false
            }
        }
    }

    /// Returns the permit, or gives everything back after a refusal.
    pub(super) fn finish(self) -> Result<Permit, LimitRefusal> {
        let Self { tokens, mut taken, refused, of_model, .. } = self;
        if refused.is_some() {
            taken.iter_mut().for_each(TakenUnits::give_back);
        }
        let mut standing = RateLimitStatus::default();
        if let Some(first) = taken.first() {
            // Read once, and behind the decisions: a bucket says less than it has left to an earlier
            // clock.
            let now_ns = first.entry.clock.now_ns();
            taken
                .iter()
                .for_each(|taken| taken.entry.add_gauges(&mut standing, taken.remaining, now_ns));
        }
        if let Some(refused) = refused {
            return Err(LimitRefusal { standing, ..refused });
        }
        // A limit that comes before the request has ended starts without it.
        let counted = |taken: &TakenUnits| taken.tokens.or(tokens.map(|tokens| tokens.about));
        let entries = taken.into_iter().map(|taken| (Arc::clone(&taken.entry), counted(&taken)));
        let entries = entries.collect();
        Ok(Permit { entries, in_flight: true, orphan_of: 0, of_model, standing })
    }

    fn refuse(&mut self, scope: Scope, limit: Limit, value: NonZeroU32, wait: Option<Wait>) {
        let Some(wait) = wait else { return };
        let (value, share, standing) = (value.get(), None, RateLimitStatus::default());
        self.refuse_as(LimitRefusal { scope, limit, value, share, wait, standing });
    }

    /// Keeps the refusal with the longest wait.
    fn refuse_as(&mut self, refused: LimitRefusal) {
        if self.refused.is_none_or(|current| current.wait < refused.wait) {
            self.refused = Some(refused);
        }
    }
}

impl TakenUnits {
    fn give_back(&mut self) {
        self.remaining = Remaining::default();
        if self.place {
            self.entry.leave();
        }
        let buckets = self.entry.buckets.read();
        if let Some(bucket) = buckets.requests.as_ref().filter(|_| self.request) {
            bucket.give_back(1);
        }
        if let Some((bucket, tokens)) = buckets.tokens.as_ref().zip(self.tokens) {
            bucket.give_back(tokens);
        }
    }
}
