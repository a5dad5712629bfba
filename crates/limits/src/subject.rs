//! The limits of one key, account or model, and what a request takes of several of them at a time.

use std::num::NonZeroU32;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard};

use super::bucket::Clock;
use super::in_use::{Entered, InUse};
use super::metered::Metered;
use super::places::{NoPlace, Places, SharedPlaces};
use super::share::{Ask, Patience, Told};
use super::{
    EstimatedTokens, Gauge, Limit, Permit, Rates, Refused, Scope, Standing, Subject, Wait,
};

/// What was used by one subject.
#[derive(Debug)]
pub(super) struct Entry {
    clock: Clock,
    /// Whether other nodes let requests of the subject through as well.
    is_shared: bool,
    /// Whether it is a key or an account, and no model: what goes on upstream keeps its place there.
    is_a_customers: bool,
    /// Written when a limit or a share changes, read by everybody else.
    buckets: RwLock<Buckets>,
    places: Places,
}

#[derive(Debug)]
struct Buckets {
    requests: Option<Metered>,
    tokens: Option<Metered>,
}

impl Buckets {
    fn are_of(&self, rates: &Rates) -> bool {
        limit_of(&self.requests) == rates.requests_per_minute
            && limit_of(&self.tokens) == rates.tokens_per_minute
    }

    fn all(&self) -> impl Iterator<Item = &Metered> {
        [&self.requests, &self.tokens].into_iter().flatten()
    }
}

fn limit_of(bucket: &Option<Metered>) -> Option<NonZeroU32> {
    bucket.as_ref().map(Metered::limit)
}

impl Entry {
    pub(super) fn new(clock: &Clock, rates: &Rates, scope: Scope, is_shared: bool) -> Self {
        let bucket = |limit| Metered::new(limit, clock, is_shared);
        let buckets = Buckets {
            requests: rates.requests_per_minute.map(bucket),
            tokens: rates.tokens_per_minute.map(bucket),
        };
        let places = Places::new(is_shared.then(|| clock.now_ns()));
        let (clock, is_a_customers) = (clock.clone(), scope != Scope::Model);
        Self { clock, is_shared, is_a_customers, buckets: RwLock::new(buckets), places }
    }

    /// Whether a new entry would say the same.
    pub(super) fn is_idle(&self) -> bool {
        let buckets = self.buckets.read();
        let now_ns = self.clock.now_ns();
        self.places.is_idle(now_ns) && buckets.all().all(|bucket| bucket.is_idle(now_ns))
    }

    /// Counts a request as over.
    pub(super) fn leave(&self) {
        self.places.leave();
    }

    /// The customer of a request has left, and the request goes on. Whether its place is free.
    pub(super) fn orphan(&self) -> bool {
        self.is_a_customers && self.places.orphan()
    }

    /// A request whose place was free before its end is over.
    pub(super) fn orphan_end(&self) {
        self.places.orphan_end();
    }

    /// A request for which `counted` tokens were taken has used `tokens`.
    pub(super) fn correct(&self, counted: u64, tokens: u64) {
        let buckets = self.buckets.read();
        let Some(bucket) = &buckets.tokens else { return };
        if tokens >= counted {
            bucket.charge(tokens - counted, self.clock.now_ns());
        } else {
            bucket.give_back(counted - tokens);
        }
    }

    /// Adds what is to be told to the other nodes.
    pub(super) fn ask(&self, subject: &Subject, asks: &mut Vec<Ask>) {
        let mut buckets = self.buckets.write();
        let Buckets { requests, tokens } = &mut *buckets;
        asks.extend(requests.as_mut().and_then(|bucket| bucket.ask(subject, Limit::Requests)));
        asks.extend(tokens.as_mut().and_then(|bucket| bucket.ask(subject, Limit::Tokens)));
        drop(buckets);
        asks.extend(self.places.ask(subject, self.clock.now_ns()));
    }

    /// Takes what an exchange brought. Whether something was given up.
    pub(super) fn apply(&self, ask: &Ask, told: &Told, until_ns: u64) -> bool {
        let mut buckets = self.buckets.write();
        let bucket = match ask.kind {
            Limit::Requests => &mut buckets.requests,
            Limit::Tokens => &mut buckets.tokens,
            Limit::Concurrency => return self.places.apply(told, until_ns, ask.is_over),
            Limit::Spend => return false,
        };
        bucket.as_mut().is_some_and(|bucket| bucket.apply(told, until_ns, ask.is_over))
    }

    /// Whether something is to be told at once.
    pub(super) fn is_urgent(&self) -> bool {
        self.places.is_urgent() || self.buckets.read().all().any(Metered::is_urgent)
    }

    /// The buckets for these limits. One whose limit is another now keeps what was used of it.
    fn buckets(&self, rates: &Rates) -> RwLockReadGuard<'_, Buckets> {
        let buckets = self.buckets.read();
        if buckets.are_of(rates) {
            return buckets;
        }
        drop(buckets);
        let mut buckets = self.buckets.write();
        let resize =
            |bucket: &mut Option<Metered>, limit: Option<NonZeroU32>| match (&mut *bucket, limit) {
                (Some(bucket), Some(limit)) if bucket.limit() != limit => bucket.resize(limit),
                (Some(_), Some(_)) => {}
                (known, limit) => {
                    *known = limit.map(|limit| Metered::new(limit, &self.clock, self.is_shared));
                }
            };
        resize(&mut buckets.requests, rates.requests_per_minute);
        resize(&mut buckets.tokens, rates.tokens_per_minute);
        parking_lot::RwLockWriteGuard::downgrade(buckets)
    }

    /// Adds how its limits stand, for a request behind which so much was left.
    fn tell(&self, standing: &mut Standing, left: Left, now_ns: u64) {
        let buckets = self.buckets.read();
        let gauge = |bucket: &Option<Metered>, left: Option<u32>| {
            let gauge = bucket.as_ref()?.gauge(now_ns);
            Some(Gauge { remaining: left.unwrap_or(gauge.remaining), ..gauge })
        };
        Standing::nearest(&mut standing.requests, gauge(&buckets.requests, left.requests));
        Standing::nearest(&mut standing.tokens, gauge(&buckets.tokens, left.tokens));
    }

    /// Counts one more request, unless there are `limit` of them already.
    fn enter(&self, limit: Option<NonZeroU32>, patience: Patience) -> Result<(), Wait> {
        self.places.enter(limit, || self.clock.now_ns(), patience)
    }

    /// Counts one more request of an account that may have no more than a share of the places.
    fn enter_shared(
        &self,
        limit: NonZeroU32,
        share: &SharedPlaces,
        patience: Patience,
    ) -> Result<Entered, NoPlace> {
        let now_ns = || self.clock.now_ns();
        self.places.enter_shared(limit, share, now_ns, patience)
    }
}

/// A request that is being let through, or not.
pub(super) struct Taking {
    tokens: Option<EstimatedTokens>,
    patience: Patience,
    /// What bounds its account's part in the places of the model that comes next.
    shared: Option<SharedPlaces>,
    of_model: Option<Entered>,
    taken: Vec<Taken>,
    refused: Option<Refused>,
}

/// What was taken of one subject.
struct Taken {
    entry: Arc<Entry>,
    request: bool,
    /// How many tokens it took, if it took any.
    tokens: Option<u64>,
    place: bool,
    left: Left,
}

/// What was left of one subject's limits when a request had taken its part; `None` of what it took
/// nothing.
#[derive(Clone, Copy, Default)]
struct Left {
    requests: Option<u32>,
    tokens: Option<u32>,
}

impl Taking {
    pub(super) fn new(tokens: Option<EstimatedTokens>, patience: Patience) -> Self {
        let (shared, of_model) = (None, None);
        let taken = Vec::with_capacity(3);
        Self { tokens, patience, shared, of_model, taken, refused: None }
    }

    /// Has the subject that is added next, a model, share its places out among accounts.
    pub(super) fn share_places(&mut self, of_account: Arc<InUse>, percent: u32) {
        self.shared = Some(SharedPlaces { of_account, percent });
    }

    /// Takes what the request needs of one subject. After a refusal the others are asked all the
    /// same: the customer is told the longest wait.
    pub(super) fn add(&mut self, scope: Scope, entry: Arc<Entry>, rates: &Rates) {
        let left = Left::default();
        let mut taken = Taken { entry, request: false, tokens: None, place: false, left };
        {
            let buckets = taken.entry.buckets(rates);
            if let Some(bucket) = &buckets.requests {
                let outcome = bucket.take(1, self.patience);
                taken.request = outcome.is_ok();
                taken.left.requests = outcome.ok().flatten();
                self.refuse(scope, Limit::Requests, bucket.limit(), outcome.err());
            }
            if let Some((bucket, tokens)) = buckets.tokens.as_ref().zip(self.tokens) {
                let counted = tokens.counted(u64::from(bucket.limit().get()));
                let outcome = bucket.take(counted, self.patience);
                taken.tokens = outcome.is_ok().then_some(counted);
                taken.left.tokens = outcome.ok().flatten();
                self.refuse(scope, Limit::Tokens, bucket.limit(), outcome.err());
            }
        }
        taken.place = self.add_place(scope, &taken.entry, rates.concurrent_requests);
        self.taken.push(taken);
    }

    /// Takes a place, and says whether there was one.
    fn add_place(&mut self, scope: Scope, entry: &Entry, limit: Option<NonZeroU32>) -> bool {
        let Some((limit, shared)) = limit.zip(self.shared.take()) else {
            let wait = entry.enter(limit, self.patience).err();
            let has_place = wait.is_none();
            if let Some(limit) = limit {
                self.refuse(scope, Limit::Concurrency, limit, wait);
            }
            return has_place;
        };
        match entry.enter_shared(limit, &shared, self.patience) {
            Ok(place) => {
                self.of_model = Some(place);
                true
            }
            Err(NoPlace { wait, share }) => {
                // Others have places there: the account is at its own bound.
                let scope = if share.is_some() { Scope::Account } else { scope };
                let (limit, value, standing) =
                    (Limit::Concurrency, limit.get(), Standing::default());
                self.refuse_as(Refused { scope, limit, value, share, wait, standing });
                false
            }
        }
    }

    /// What was taken, or nothing of it.
    pub(super) fn finish(self) -> Result<Permit, Refused> {
        let Self { tokens, mut taken, refused, of_model, .. } = self;
        if refused.is_some() {
            taken.iter_mut().for_each(Taken::give_back);
        }
        let mut standing = Standing::default();
        if let Some(first) = taken.first() {
            // Read once, and behind the decisions: a bucket says less than it has left to an earlier
            // clock.
            let now_ns = first.entry.clock.now_ns();
            taken.iter().for_each(|taken| taken.entry.tell(&mut standing, taken.left, now_ns));
        }
        if let Some(refused) = refused {
            return Err(Refused { standing, ..refused });
        }
        // A limit that comes before the request has ended starts without it.
        let counted = |taken: &Taken| taken.tokens.or(tokens.map(|tokens| tokens.about));
        let entries = taken.into_iter().map(|taken| (Arc::clone(&taken.entry), counted(&taken)));
        let entries = entries.collect();
        Ok(Permit { entries, in_flight: true, orphan_of: 0, of_model, standing })
    }

    fn refuse(&mut self, scope: Scope, limit: Limit, value: NonZeroU32, wait: Option<Wait>) {
        let Some(wait) = wait else { return };
        let (value, share, standing) = (value.get(), None, Standing::default());
        self.refuse_as(Refused { scope, limit, value, share, wait, standing });
    }

    /// Keeps the refusal with the longest wait.
    fn refuse_as(&mut self, refused: Refused) {
        if self.refused.is_none_or(|known| known.wait < refused.wait) {
            self.refused = Some(refused);
        }
    }
}

impl Taken {
    fn give_back(&mut self) {
        self.left = Left::default();
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
