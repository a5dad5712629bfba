//! Load balancing over a model's targets, and their health.
//!
//! | File | Responsibility |
//! |---|---|
//! | `choose` | selection by priority, weight, load and conversation affinity |
//! | `breaker` | circuit breaker: states, back-off, slow start |
//! | `circuit` | shared and per-account breakers of one endpoint |
//! | `accounts` | recent results per account, each with one vote |
//! | `call_kind` | call kinds, with circuits of their own at each target |
//! | `free_calls` | limits of free calls |
//! | `channel` | a target with a credential, and its health |
//! | `candidate` | a channel selected for a try, and the report of its outcome |
//! | `candidates` | channels that one request may still try |
//! | `quota` | provider quotas from rate-limit headers |
//! | `budget` | retry budget |
//! | `account_cache` | bounded cache of facts about upstreams, per account |
//! | `stored_ids` | credential behind each object that upstreams store for accounts |
//! | `unknown_names` | chosen model names that upstreams do not know |
//! | `candidate_view` | snapshot of a model's channels for the admin API |

mod accounts;
mod breaker;
mod budget;
mod candidate;
mod candidates;
mod channel;
mod choose;
mod circuit;
mod credential_scan;
mod free_calls;
mod account_cache;
mod other_kinds;
mod quota;
mod stored_ids;
mod unknown_names;
mod candidate_view;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

pub use account_cache::{AccountCache, CacheBounds};
pub use breaker::CircuitStanding;
pub use budget::RetryBudget;
use candidate::RankedChannel;
pub use candidate::{Candidate, TargetRank};
pub use candidate_view::CandidateView;
pub use candidates::{Candidates, Retry};
use candidates::{ChosenName, RequestOwner};
pub use channel::{Channel, OrphanGuard, Outcome, UpstreamState};
use channel::{Finders, PlannedCall};
use circuit::CallOrigin;
pub use circuit::Circuit;
pub use credential_scan::{CredentialFinder, CredentialLeak, CredentialScan};
pub use free_calls::{FreeCall, FreeCalls, FreeRefusal};
use other_kinds::OtherKinds;
pub use quota::{QuotaKind, QuotaReport, QuotaStanding};
use stored_ids::ObjectHomes;
pub use stored_ids::{Home, StoredIdRecorder};
use unknown_names::UnknownNames;

#[doc(hidden)]
pub use tollgate_config::sample;
pub use tollgate_config::snapshot::CallKind;
use tollgate_config::snapshot::{Credential, CredentialKind, Snapshot, Target, Upstream};

/// State of all targets of a gateway. Unchanged targets keep theirs over reloads.
#[derive(Debug)]
pub struct Balancer {
    table: ArcSwap<Table>,
    budget: Arc<RetryBudget>,
    /// Separate budget for retries of free calls, so that they use none of the billed calls'.
    free_budget: Arc<RetryBudget>,
    free_calls: Arc<FreeCalls>,
    unknown: Arc<UnknownNames>,
    stored: Arc<ObjectHomes>,
}

/// Properties of a request that decide its candidates.
#[derive(Clone, Copy, Debug)]
pub struct CandidateQuery<'a> {
    /// Number of the account.
    pub account: u64,
    /// Kind of its calls.
    pub kind: CallKind,
    /// Model name from the request, if the model's id is a pattern.
    pub name: Option<&'a str>,
    /// Estimated lower bound of the prompt's tokens.
    pub tokens: u64,
    /// Storage location of the objects that the request refers to.
    pub home: Option<Home>,
}

/// Upstream that stores an object, and the credential to access it.
#[derive(Clone, Debug)]
pub struct ResolvedHome {
    /// Upstream that stores it.
    pub upstream: Arc<Upstream>,
    /// Credential that created it; `None` for an upstream without authentication.
    pub credential: Option<Credential>,
}

/// State of the targets of one configuration.
#[derive(Debug, Default)]
pub struct Table {
    snapshot: Option<Arc<Snapshot>>,
    /// Channels of each target, by [`Target::index`].
    channels: Vec<Vec<Arc<Channel>>>,
    by_identity: HashMap<ChannelIdentity, Arc<Channel>>,
    accounts: HashMap<ChannelIdentity, Arc<Mutex<Circuit>>>,
    upstreams: HashMap<String, Arc<UpstreamState>>,
}

/// Identity of a channel across reloads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ChannelIdentity {
    upstream: String,
    authority: String,
    /// Upstream's model name and main call kind; `None` for the credential as a whole.
    model: Option<(String, CallKind)>,
    /// Hash of the credential, so that no copy of the secret is kept.
    credential: u64,
}

impl Balancer {
    /// Create the balancer for an initial configuration.
    #[must_use]
    pub fn new(snapshot: &Arc<Snapshot>) -> Arc<Self> {
        let table = ArcSwap::from_pointee(Table::default().next(snapshot));
        let budget = || Arc::new(RetryBudget::new(Instant::now()));
        let (budget, free_budget) = (budget(), budget());
        let (unknown, stored) = (Arc::default(), Arc::default());
        let free_calls = FreeCalls::new();
        Arc::new(Self { table, budget, free_budget, free_calls, unknown, stored })
    }

    /// Limiter of free calls.
    #[must_use]
    pub fn free_calls(&self) -> &Arc<FreeCalls> {
        &self.free_calls
    }

    /// State of the targets of `snapshot`.
    #[must_use]
    pub fn table(&self, snapshot: &Arc<Snapshot>) -> Arc<Table> {
        let table = self.table.load_full();
        if table.snapshot.as_ref().is_some_and(|existing| Arc::ptr_eq(existing, snapshot)) {
            return table;
        }
        let table = Arc::new(table.next(snapshot));
        // Two that come here at one time both make it, and the later one stands. What a new target has counted
        // in the other is lost, which is a moment's.
        self.table.store(Arc::clone(&table));
        table
    }

    /// Storage location of the object with this id that the account created; `None` if unknown.
    #[must_use]
    pub fn home(&self, account: u64, id: &str) -> Option<Home> {
        self.stored.home(account, id, Instant::now())
    }

    /// Resolve a storage location in the configuration `snapshot`; `None` if it is no longer configured.
    #[must_use]
    pub fn resolve_home(&self, snapshot: &Arc<Snapshot>, home: Home) -> Option<ResolvedHome> {
        let table = self.table(snapshot);
        let mut targets = snapshot.models.iter().flat_map(|model| &model.targets);
        targets.find_map(|target| {
            let mut channels = table.channels(target).iter();
            let channel = channels.find(|channel| channel.home == home)?;
            let credential = channel.credential.clone();
            Some(ResolvedHome { upstream: Arc::clone(&target.upstream), credential })
        })
    }

    /// Candidates for a request among `targets`; higher ranks are tried when no lower one is available.
    /// Requests of one `affinity` stay on one channel while it is healthy; it is evaluated only if there
    /// is a choice.
    pub fn candidates<'a>(
        &self,
        snapshot: &Arc<Snapshot>,
        targets: impl Iterator<Item = (TargetRank, &'a Arc<Target>)>,
        query: CandidateQuery<'_>,
        affinity: impl FnOnce() -> Option<u64>,
    ) -> Candidates {
        let table = self.table(snapshot);
        let mut chosen = query.name.map(|name| ChosenName {
            name: name.to_owned(),
            unknown: Arc::clone(&self.unknown),
            is_unknown: false,
        });
        let caller = CallOrigin { account: query.account, tokens: query.tokens };
        let call = PlannedCall { caller, kind: query.kind };
        let mut channels = Vec::new();
        for (rank, target) in targets {
            let at_home = |channel: &&Arc<Channel>| query.home.is_none_or(|at| at == channel.home);
            for channel in table.channels(target).iter().filter(at_home) {
                let is_unknown_name = |chosen: &ChosenName| {
                    let unknown = &chosen.unknown;
                    unknown.has(call, channel, &chosen.name, Instant::now())
                };
                match chosen.as_mut().filter(|_| target.model.is_none()) {
                    Some(chosen) if is_unknown_name(chosen) => chosen.is_unknown = true,
                    _ => {
                        let (target, channel) = (Arc::clone(target), Arc::clone(channel));
                        channels.push(Some(RankedChannel { rank, target, channel }));
                    }
                }
            }
        }
        // It may hash the prompt: nothing is spent on that where there is no choice.
        let affinity = if channels.len() > 1 { affinity() } else { None };
        let budget = if query.kind.is_free() { &self.free_budget } else { &self.budget };
        let budget = Arc::clone(budget);
        let stored = Arc::clone(&self.stored);
        let owner = RequestOwner { call, chosen, stored };
        Candidates::new(channels, owner, affinity, snapshot.balancing, budget)
    }
}

impl Table {
    /// Channels of a target.
    #[must_use]
    pub fn channels(&self, target: &Target) -> &[Arc<Channel>] {
        self.channels.get(target.index).map_or(&[], Vec::as_slice)
    }

    /// State of an upstream.
    #[must_use]
    pub fn upstream(&self, name: &str) -> Option<&Arc<UpstreamState>> {
        self.upstreams.get(name)
    }

    /// Build the table of another configuration, keeping the state of unchanged targets.
    fn next(&self, snapshot: &Arc<Snapshot>) -> Self {
        let mut next = Self { snapshot: Some(Arc::clone(snapshot)), ..Self::default() };
        for name in snapshot.upstreams.keys() {
            let state = self.upstreams.get(name).cloned().unwrap_or_default();
            next.upstreams.insert(name.clone(), state);
        }
        let targets = snapshot.models.iter().flat_map(|model| {
            let kind = model.main_kind();
            model.targets.iter().map(move |target| (kind, target))
        });
        for (kind, target) in targets {
            let credentials = &target.upstream.credentials;
            let channels = match credentials.as_slice() {
                [] => vec![next.channel(self, target, kind, None)],
                all => all.iter().map(|one| next.channel(self, target, kind, Some(one))).collect(),
            };
            if next.channels.len() <= target.index {
                next.channels.resize(target.index + 1, Vec::new());
            }
            if let Some(slot) = next.channels.get_mut(target.index) {
                *slot = channels;
            }
        }
        next
    }

    fn channel(
        &mut self,
        before: &Self,
        target: &Target,
        kind: CallKind,
        credential: Option<&Credential>,
    ) -> Arc<Channel> {
        let upstream = &target.upstream;
        let account = ChannelIdentity {
            upstream: upstream.name.clone(),
            authority: upstream.authority.clone(),
            model: None,
            credential: credential.map_or(0, hash),
        };
        let identity = ChannelIdentity {
            model: Some((target.model.clone().unwrap_or_default(), kind)),
            ..account.clone()
        };
        if let Some(existing) =
            self.by_identity.get(&identity).or_else(|| before.by_identity.get(&identity))
        {
            let existing = Arc::clone(existing);
            self.accounts.insert(account, Arc::clone(&existing.account));
            self.by_identity.insert(identity, Arc::clone(&existing));
            return existing;
        }
        // The credential keeps its circuit for a new model too: what it was refused for holds there as
        // well.
        let existing = self.accounts.get(&account).or_else(|| before.accounts.get(&account));
        let shared = existing.cloned().unwrap_or_default();
        self.accounts.insert(account, Arc::clone(&shared));
        let state = self.upstreams.entry(upstream.name.clone()).or_default();
        let channel = Arc::new(Channel {
            credential: credential.cloned(),
            finders: Finders::new(credential),
            upstream: Arc::clone(state),
            account: shared,
            kind,
            circuit: Mutex::default(),
            others: OtherKinds::default(),
            in_flight: AtomicU32::new(0),
            seed: seed(target, credential),
            target_seed: seed(target, None),
            home: Home(home(target, credential)),
            last_failure: Mutex::new(None),
            quotas: Mutex::default(),
        });
        self.by_identity.insert(identity, Arc::clone(&channel));
        channel
    }
}

fn hash(credential: &Credential) -> u64 {
    // Within one process only, so the hasher need not be the same in all versions; `seed` must.
    let mut hasher = DefaultHasher::new();
    match &credential.kind {
        CredentialKind::Key(key) => (&credential.name, key.expose()).hash(&mut hasher),
        CredentialKind::Auth(auth) => (&credential.name, auth.id()).hash(&mut hasher),
    }
    hasher.finish()
}

/// Seed of the rendezvous hash. It depends only on names, so every gateway selects the same target for a
/// conversation.
fn seed(target: &Target, credential: Option<&Credential>) -> u64 {
    let mut hasher = Sha256::new();
    let names = [
        target.upstream.name.as_str(),
        target.model.as_deref().unwrap_or_default(),
        credential.map_or("", |credential| &credential.name),
    ];
    for name in names {
        hasher.update(name);
        hasher.update([0]);
    }
    first_64_bits(hasher)
}

/// Id of the storage location of a credential at an upstream, independent of the model and of key
/// rotation.
fn home(target: &Target, credential: Option<&Credential>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&target.upstream.name, credential.map(|credential| &credential.name)).hash(&mut hasher);
    hasher.finish()
}

/// First 64 bits of a digest.
#[must_use]
pub fn first_64_bits(hasher: Sha256) -> u64 {
    hasher.finalize().iter().take(8).fold(0, |bits, byte| (bits << 8) | u64::from(*byte))
}
