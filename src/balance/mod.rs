//! Which of a model's targets gets a request, and how they are doing.
//!
//! | File | What it knows |
//! |---|---|
//! | `choose` | the choice: priority, weight, load, conversations that stay where they are |
//! | `circuit` | whether calls are worth making: circuit breaker, back-off, slow start |
//! | `accounts` | what the accounts that called last have seen, each with one voice |
//! | `kind` | kinds of calls, which have circuits of their own at each target |
//! | `free` | limits of calls that cost nothing |
//! | `channel` | a target with a credential, and what came of calls to it |
//! | `candidate` | a channel that was chosen for a try, and what comes of the try |
//! | `candidates` | what one request may still try |
//! | `quota` | what providers say is left of the operator's quota |
//! | `budget` | how many retries there may be |
//! | `memory` | what accounts have found out about upstreams, for a while and within bounds |
//! | `stored` | which credential made what upstreams keep for accounts |
//! | `unknown` | names that customers chose and upstreams do not know |
//! | `ways` | how calls are spread now, for those who look on |

mod accounts;
mod budget;
mod candidate;
mod candidates;
mod channel;
mod choose;
mod circuit;
mod credential_scan;
mod free;
mod kind;
mod memory;
mod quota;
mod stored;
mod unknown;
mod ways;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

pub use budget::RetryBudget;
use candidate::UntriedWay;
pub use candidate::{Candidate, TargetRank};
pub use candidates::{Candidates, Retry};
use candidates::{Chosen, Whose};
pub use channel::{Channel, Orphaned, Outcome, UpstreamState};
use channel::{Finders, PlannedCall};
use circuit::Caller;
pub use circuit::{Circuit, CircuitStanding};
pub use credential_scan::{CredentialFinder, CredentialScan, HoldsCredential};
pub use free::{FreeCall, FreeCalls, FreeRefusal};
pub use kind::CallKind;
use kind::OtherKinds;
pub(crate) use memory::{Bounds, Memory};
pub use quota::{QuotaKind, QuotaReport, QuotaStanding};
use stored::Stored;
pub use stored::{Home, Keeper};
use unknown::UnknownNames;
pub use ways::Way;

use crate::config::snapshot::{Credential, CredentialKind, Snapshot, Target, Upstream};

/// The state of all targets of a gateway. It outlives reloads for what stays the same.
#[derive(Debug)]
pub struct Balancer {
    table: ArcSwap<Table>,
    budget: Arc<RetryBudget>,
    /// Retries of calls that cost nothing: they take none from those that are paid for.
    free_budget: Arc<RetryBudget>,
    free_calls: Arc<FreeCalls>,
    unknown: Arc<UnknownNames>,
    stored: Arc<Stored>,
}

/// Whose request it is, and what in it is about upstreams.
#[derive(Clone, Copy, Debug)]
pub struct CandidateQuery<'a> {
    /// The number of the account.
    pub account: u64,
    /// The kind of its calls.
    pub kind: CallKind,
    /// The model's name, where the customer has chosen it: behind a pattern.
    pub name: Option<&'a str>,
    /// The least number of tokens that its prompt has.
    pub tokens: u64,
    /// Where that is kept which the request refers to.
    pub home: Option<Home>,
}

/// Where an upstream keeps something, and how it is asked for that.
#[derive(Clone, Debug)]
pub struct ResolvedHome {
    /// The upstream that keeps it.
    pub upstream: Arc<Upstream>,
    /// The credential with which it was made; `None` for an upstream that asks for none.
    pub credential: Option<Credential>,
}

/// The state of the targets of one configuration.
#[derive(Debug, Default)]
pub struct Table {
    snapshot: Option<Arc<Snapshot>>,
    /// The channels to each target, by [`Target::index`].
    channels: Vec<Vec<Arc<Channel>>>,
    known: HashMap<Identity, Arc<Channel>>,
    accounts: HashMap<Identity, Arc<Mutex<Circuit>>>,
    upstreams: HashMap<String, Arc<UpstreamState>>,
}

/// What makes a channel the same one after a reload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    upstream: String,
    authority: String,
    /// The upstream's name for the model, and the kind of call that models are there for; `None` for the
    /// account as a whole.
    model: Option<(String, CallKind)>,
    /// A hash, so that no secret is kept beside the configuration.
    credential: u64,
}

impl Balancer {
    /// Over a first configuration.
    #[must_use]
    pub fn new(snapshot: &Arc<Snapshot>) -> Arc<Self> {
        let table = ArcSwap::from_pointee(Table::default().next(snapshot));
        let budget = || Arc::new(RetryBudget::new(Instant::now()));
        let (budget, free_budget) = (budget(), budget());
        let (unknown, stored) = (Arc::default(), Arc::default());
        let free_calls = FreeCalls::new();
        Arc::new(Self { table, budget, free_budget, free_calls, unknown, stored })
    }

    /// The calls under way that cost nothing, and how many of them were made.
    #[must_use]
    pub fn free_calls(&self) -> &Arc<FreeCalls> {
        &self.free_calls
    }

    /// The state of the targets of `snapshot`.
    #[must_use]
    pub fn table(&self, snapshot: &Arc<Snapshot>) -> Arc<Table> {
        let table = self.table.load_full();
        if table.snapshot.as_ref().is_some_and(|known| Arc::ptr_eq(known, snapshot)) {
            return table;
        }
        let table = Arc::new(table.next(snapshot));
        self.table.store(Arc::clone(&table));
        table
    }

    /// Where that is kept which the account was given this id for; `None` for what is another
    /// account's too.
    #[must_use]
    pub fn home(&self, account: u64, id: &str) -> Option<Home> {
        self.stored.home(account, id, Instant::now())
    }

    /// The upstream and the credential that are this home in the configuration `snapshot`; `None` where
    /// they are not configured any more.
    #[must_use]
    pub fn keeps(&self, snapshot: &Arc<Snapshot>, home: Home) -> Option<ResolvedHome> {
        let table = self.table(snapshot);
        let mut targets = snapshot.models.iter().flat_map(|model| &model.targets);
        targets.find_map(|target| {
            let mut channels = table.channels(target).iter();
            let channel = channels.find(|channel| channel.home == home)?;
            let credential = channel.credential.clone();
            Some(ResolvedHome { upstream: Arc::clone(&target.upstream), credential })
        })
    }

    /// The ways that a request may try, of `targets` with their ranks: those of a higher
    /// rank are tried when none of a lower one can be. Those of one `affinity` go to the same one as long as
    /// that is in order; it is asked for only where there is a choice.
    pub fn candidates<'a>(
        &self,
        snapshot: &Arc<Snapshot>,
        targets: impl Iterator<Item = (TargetRank, &'a Arc<Target>)>,
        asked: CandidateQuery<'_>,
        affinity: impl FnOnce() -> Option<u64>,
    ) -> Candidates {
        let table = self.table(snapshot);
        let mut chosen = asked.name.map(|name| Chosen {
            name: name.to_owned(),
            unknown: Arc::clone(&self.unknown),
            is_unknown: false,
        });
        let caller = Caller { account: asked.account, tokens: asked.tokens };
        let call = PlannedCall { caller, kind: asked.kind };
        let mut ways = Vec::new();
        for (rank, target) in targets {
            let at_home = |channel: &&Arc<Channel>| asked.home.is_none_or(|at| at == channel.home);
            for channel in table.channels(target).iter().filter(at_home) {
                let knows_not = |chosen: &Chosen| {
                    let unknown = &chosen.unknown;
                    unknown.has(call, channel, &chosen.name, Instant::now())
                };
                match chosen.as_mut().filter(|_| target.model.is_none()) {
                    Some(chosen) if knows_not(chosen) => chosen.is_unknown = true,
                    _ => {
                        let (target, channel) = (Arc::clone(target), Arc::clone(channel));
                        ways.push(Some(UntriedWay { rank, target, channel }));
                    }
                }
            }
        }
        let affinity = if ways.len() > 1 { affinity() } else { None };
        let budget = if asked.kind.is_free() { &self.free_budget } else { &self.budget };
        let budget = Arc::clone(budget);
        let stored = Arc::clone(&self.stored);
        let whose = Whose { call, chosen, stored };
        Candidates::new(ways, whose, affinity, snapshot.balancing, budget)
    }
}

impl Table {
    /// The ways to a target.
    #[must_use]
    pub fn channels(&self, target: &Target) -> &[Arc<Channel>] {
        self.channels.get(target.index).map_or(&[], Vec::as_slice)
    }

    /// What is known of an upstream.
    #[must_use]
    pub fn upstream(&self, name: &str) -> Option<&Arc<UpstreamState>> {
        self.upstreams.get(name)
    }

    /// The table of another configuration, with what is known of what stays.
    fn next(&self, snapshot: &Arc<Snapshot>) -> Self {
        let mut next = Self { snapshot: Some(Arc::clone(snapshot)), ..Self::default() };
        for name in snapshot.upstreams.keys() {
            let state = self.upstreams.get(name).cloned().unwrap_or_default();
            next.upstreams.insert(name.clone(), state);
        }
        let targets = snapshot.models.iter().flat_map(|model| {
            let kind = CallKind::main_of(model);
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
        let account = Identity {
            upstream: upstream.name.clone(),
            authority: upstream.authority.clone(),
            model: None,
            credential: credential.map_or(0, hash),
        };
        let identity = Identity {
            model: Some((target.model.clone().unwrap_or_default(), kind)),
            ..account.clone()
        };
        if let Some(known) = self.known.get(&identity).or_else(|| before.known.get(&identity)) {
            let known = Arc::clone(known);
            self.accounts.insert(account, Arc::clone(&known.account));
            self.known.insert(identity, Arc::clone(&known));
            return known;
        }
        let known = self.accounts.get(&account).or_else(|| before.accounts.get(&account));
        let shared = known.cloned().unwrap_or_default();
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
        self.known.insert(identity, Arc::clone(&channel));
        channel
    }
}

fn hash(credential: &Credential) -> u64 {
    let mut hasher = DefaultHasher::new();
    match &credential.kind {
        CredentialKind::Key(key) => (&credential.name, key.expose()).hash(&mut hasher),
        CredentialKind::Auth(auth) => (&credential.name, auth.id()).hash(&mut hasher),
    }
    hasher.finish()
}

/// What a conversation's target is drawn by. It is equal at all gateways that have the same names, so that
/// a conversation finds its target again whichever gateway it comes to.
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

/// Where an upstream keeps things for a credential, whatever the model and the secret: what one secret
/// has left there, the next one of the same name finds.
fn home(target: &Target, credential: Option<&Credential>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&target.upstream.name, credential.map(|credential| &credential.name)).hash(&mut hasher);
    hasher.finish()
}

/// The first 64 bits of a digest, which is as much as a choice looks at.
#[must_use]
pub fn first_64_bits(hasher: Sha256) -> u64 {
    hasher.finalize().iter().take(8).fold(0, |bits, byte| (bits << 8) | u64::from(*byte))
}
