//! Comparison of a directory before and after a move.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::{BTreeMap, BTreeSet};

use crate::records::error::OpenError;
use crate::records::record::Record;
use crate::rules::core::{AccountState, Core};
use crate::rules::shards::{new_cores, shard_index};
use tollgate_types::ids::{AccountId, Seq};

/// State of a ledger that contains nothing but the followed directory.
pub struct DirectoryState {
    cores: Vec<Core>,
    seq: Seq,
}

impl Default for DirectoryState {
    /// The state before the first write.
    fn default() -> Self {
        Self { cores: new_cores(), seq: 0 }
    }
}

impl DirectoryState {
    /// Applies a write.
    ///
    /// # Errors
    /// When a node could not take it over.
    pub fn take(&mut self, records: &[Record]) -> Result<(), OpenError> {
        for record in records {
            self.seq = self.seq.saturating_add(1);
            let core = &mut self.cores[shard_index(record.account())];
            core.apply(self.seq, record).map_err(OpenError::Violation)?;
        }
        Ok(())
    }

    /// Names that collide when two ledgers merge: ids of accounts, keys and codes, their hashes,
    /// e-mail addresses, and price groups.
    pub fn names(&self) -> BTreeSet<String> {
        names(&self.cores)
    }

    /// Number of keys per account.
    pub fn keys(&self) -> BTreeMap<AccountId, u64> {
        let states = self.cores.iter().flat_map(|core| core.accounts.values());
        states.map(|state| (state.account.id, state.keys.len() as u64)).collect()
    }

    /// Number of codes, and of their uses.
    pub fn codes(&self) -> (u64, u64) {
        codes(&self.cores)
    }

    /// Differences from `cores`, in words; empty if there are none.
    pub fn differences(&self, cores: &[Core]) -> Vec<String> {
        let accounts = |cores: &[Core]| -> BTreeMap<AccountId, String> {
            let states = cores.iter().flat_map(|core| core.accounts.values());
            states.map(|state| (state.account.id, inner(state))).collect()
        };
        let (here, there) = (accounts(&self.cores), accounts(cores));
        let ids: BTreeSet<_> = here.keys().chain(there.keys()).collect();
        let other = ids.into_iter().filter(|id| here.get(id) != there.get(id));
        let mut found: Vec<_> =
            other.map(|id| format!("{id}: its keys, limits, grants or people differ")).collect();
        if code_texts(&self.cores) != code_texts(cores) {
            found.push("codes differ".to_owned());
        }
        if group_texts(&self.cores) != group_texts(cores) {
            found.push("price groups differ".to_owned());
        }
        found
    }
}

/// See [`DirectoryState::names`].
pub(super) fn names(cores: &[Core]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for state in cores.iter().flat_map(|core| core.accounts.values()) {
        names.insert(state.account.id.to_string());
        for key in state.keys.values() {
            names.insert(key.id.to_string());
            names.insert(format!("the key that {} is checked with", hash(&key.hash)));
        }
        names.extend(state.customers.login.as_ref().map(|login| login.email.clone()));
    }
    for (id, state) in cores.iter().flat_map(|core| &core.operator.codes) {
        names.insert(id.to_string());
        names.insert(format!("the code that {} is checked with", hash(&state.code.hash)));
    }
    let groups = cores.iter().flat_map(|core| core.operator.groups.keys());
    names.extend(groups.map(|name| format!("the price group {name}")));
    names
}

fn hash(hash: &tollgate_types::secret::KeyHash) -> String {
    // Encoding into memory does not fail; the text only compares.
    let bytes = postcard::to_stdvec(hash).unwrap_or_default();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The price groups, as text that compares.
fn group_texts(cores: &[Core]) -> String {
    let groups = cores.iter().flat_map(|core| &core.operator.groups);
    format!("{:?}", groups.collect::<BTreeMap<_, _>>())
}

pub(super) fn codes(cores: &[Core]) -> (u64, u64) {
    let states = || cores.iter().flat_map(|core| core.operator.codes.values());
    (states().count() as u64, states().map(|state| state.uses.len() as u64).sum())
}

/// Everything of an account that the directory says, as text that compares.
fn inner(state: &AccountState) -> String {
    let account = &state.account;
    let keys: BTreeMap<_, _> =
        state.keys.iter().map(|(id, key)| (id, (key, hash(&key.hash)))).collect();
    let limits = state.spendings.iter().map(|(key, spending)| (key, spending.limits));
    let limits: BTreeMap<_, _> =
        limits.filter(|(_, limits)| *limits != crate::KeyLimits::default()).collect();
    let grants = state.grants.iter().map(|(id, grant)| (id, grant.amount));
    let refunds = state.refunds.iter().map(|(id, refund)| (id, refund.amount));
    let write_offs = state.write_offs.iter().map(|(id, write_off)| (id, write_off.amount));
    let login = state.customers.login.as_ref().map(|login| (&login.email, &login.password));
    let ended: BTreeMap<_, _> = state.customers.ended.iter().collect();
    let about = (
        &account.name,
        account.created_at,
        account.suspended,
        state.rates,
        &state.customers.prices,
    );
    let holds = &state.customers.holds;
    let given = (
        grants.collect::<BTreeMap<_, _>>(),
        refunds.collect::<BTreeMap<_, _>>(),
        write_offs.collect::<BTreeMap<_, _>>(),
    );
    format!("{about:?} {holds:?} {keys:?} {limits:?} {given:?} {login:?} {ended:?}")
}

fn code_texts(cores: &[Core]) -> BTreeMap<tollgate_types::ids::CodeId, String> {
    let codes = cores.iter().flat_map(|core| &core.operator.codes);
    let inner = codes.map(|(id, state)| {
        let uses: BTreeMap<_, _> = state.uses.iter().collect();
        (
            *id,
            format!("{:?} {} {:?} {uses:?}", state.code, hash(&state.code.hash), state.revoked_at),
        )
    });
    inner.collect()
}
