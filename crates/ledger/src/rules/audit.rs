//! Invariants of a whole state, and its hash.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::records::act::Act;
use crate::records::holds::HoldsRow;
use crate::records::loss::LossSums;
use crate::records::task::Task;
use crate::rules::account::Balance;
use crate::rules::core::Core;
use crate::rules::key_spend::KeySpend;
use crate::rules::operator::CodeState;
use crate::rules::sums::AccountSums;
use tollgate_money::money::Nanousd;
use tollgate_types::ids::{AccountId, CodeId, Seq};

/// The rules that the state of all accounts breaks: `granted = available + held + spent`, nothing
/// negative, not even a debt, no more lent than granted, `held` the sum of the open holds (I1–I3), by account and by key, an open hold for every
/// task that has not ended, one account for each address, and what a code gives for each of its uses
/// and for nothing else. Empty when all is well.
#[must_use]
pub fn violations<'a>(cores: impl Iterator<Item = &'a Core> + Clone) -> Vec<String> {
    let mut held: HashMap<AccountId, Option<Nanousd>> = HashMap::new();
    for (_, hold) in cores.clone().flat_map(Core::holds) {
        let sum = held.entry(hold.reservation.account).or_insert(Some(Nanousd::ZERO));
        *sum = sum.and_then(|sum| sum.checked_add(hold.amount));
    }
    let mut found = Vec::new();
    for core in cores.clone() {
        let unpaid = |task: &&std::sync::Arc<Task>| {
            task.ended().is_none() && core.hold(task.intent.hold).is_none()
        };
        found.extend(core.tasks().filter(unpaid).map(|task| format!("{} has no hold", task.id())));
    }
    cores.clone().for_each(|core| check_keys(core, &mut found));
    cores.clone().for_each(|core| check_sums(core, &mut found));
    check_logins(cores.clone(), &mut found);
    check_codes(cores.clone(), &mut found);
    for account in cores.flat_map(Core::accounts) {
        let balance = account.balance;
        if !balance.is_sound() {
            found.push(format!(
                "{}: granted {} is not available {} + held {} + spent {}, or one is negative",
                account.id, balance.granted, balance.available, balance.held, balance.spent
            ));
        }
        let holds = held.remove(&account.id).unwrap_or(Some(Nanousd::ZERO));
        if holds != Some(balance.held) {
            found.push(format!(
                "{}: {} is held, but its open holds sum to {}",
                account.id,
                balance.held,
                holds.map_or_else(|| "more than can be held".to_owned(), |sum| sum.to_string())
            ));
        }
    }
    found.extend(
        held.keys().map(|id| format!("{id}: open holds of an account that does not exist")),
    );
    found
}

/// Reports keys whose holds differ from the sum of their open holds.
fn check_keys(core: &Core, found: &mut Vec<String>) {
    let mut held: HashMap<_, Nanousd> = HashMap::new();
    for (_, hold) in core.holds() {
        let sum = held.entry((hold.reservation.account, hold.reservation.key)).or_default();
        *sum = sum.saturating_add(hold.amount);
    }
    for state in core.accounts.values() {
        for (key, spending) in state.spendings.iter() {
            let holds = held.remove(&(state.account.id, key)).unwrap_or_default();
            if holds != spending.held {
                let inner = spending.held;
                found.push(format!("{key}: {inner} is held, but its open holds sum to {holds}"));
            }
        }
    }
}

/// Reports kept sums that differ from those over the accounts.
fn check_sums(core: &Core, found: &mut Vec<String>) {
    let mut sums = AccountSums::default();
    core.accounts().for_each(|account| sums.insert(account));
    if sums != core.sums {
        found.push(format!("the accounts sum to {sums:?}, not to {:?}", core.sums));
    }
    let mut losses = LossSums::new();
    for (cause, sum) in core.accounts.values().flat_map(|state| &state.losses) {
        losses.entry(cause.clone()).or_default().add(*sum);
    }
    if losses != core.losses {
        found.push(format!("the losses sum to {losses:?}, not to {:?}", core.losses));
    }
}

/// Notes addresses that open more than one account.
fn check_logins<'a>(cores: impl Iterator<Item = &'a Core>, found: &mut Vec<String>) {
    let mut owners: HashMap<&str, AccountId> = HashMap::new();
    for state in cores.flat_map(|core| core.accounts.values()) {
        let Some(login) = &state.customers.login else { continue };
        if let Some(other) = owners.insert(&login.email, state.account.id) {
            found.push(format!("{} and {other} have one e-mail address", state.account.id));
        }
    }
}

/// Reports uses of codes without the matching credit, and credit without a use.
fn check_codes<'a>(cores: impl Iterator<Item = &'a Core> + Clone, found: &mut Vec<String>) {
    let codes: HashMap<CodeId, &CodeState> = cores
        .clone()
        .flat_map(|core| &core.operator.codes)
        .map(|(id, state)| (*id, state))
        .collect();
    // What was given for codes, by code and account.
    let mut given: HashMap<(CodeId, AccountId), Nanousd> = HashMap::new();
    for state in cores.flat_map(|core| core.accounts.values()) {
        let of_codes = state.grants.iter().filter_map(|(id, grant)| {
            let code: CodeId = id.parse().ok()?;
            codes.contains_key(&code).then_some(((code, state.account.id), grant.amount))
        });
        given.extend(of_codes);
    }
    for (id, state) in codes {
        if state.uses.len() as u64 > u64::from(state.code.uses_max) {
            found.push(format!("{id} was used more often than it can be"));
        }
        for account in state.uses.keys() {
            if given.remove(&(id, *account)) != state.code.amount {
                found.push(format!("{id} did not give {account} what it is good for"));
            }
        }
    }
    found.extend(
        given.keys().map(|(id, account)| format!("{id} gave to {account}, which has not used it")),
    );
}

/// Hash of the whole state, independent of the sharding of accounts.
#[must_use]
pub fn state_hash<'a>(cores: impl Iterator<Item = &'a Core> + Clone) -> [u8; 32] {
    let mut hasher = Sha256::new();
    let mut states: Vec<_> = cores.clone().flat_map(|core| core.accounts.values()).collect();
    states.sort_by_key(|state| state.account.id);
    for state in states {
        let account = &state.account;
        add(&mut hasher, &(account.id, &account.name, account.created_at, account.suspended));
        add(&mut hasher, &(&state.customers.login, &state.customers.doubts));
        let Balance { granted, available, held, spent, debt, credit } = account.balance;
        add(&mut hasher, &(granted, available, held, spent, account.written_off));
        // What there was not before there were debts leaves the hash of such a state as it was.
        if !debt.is_zero() || !state.write_offs.is_empty() || !state.losses.is_empty() {
            add(&mut hasher, &("debt", debt, &state.losses));
            add_sorted(&mut hasher, state.write_offs.iter());
        }
        if !credit.is_zero() {
            add(&mut hasher, &("credit line", credit));
        }
        add_sorted(&mut hasher, state.keys.iter());
        add_sorted(&mut hasher, state.grants.iter());
        add_sorted(&mut hasher, state.refunds.iter());
        add(&mut hasher, &state.rates);
        if let Some(prices) = &state.customers.prices {
            add(&mut hasher, &("prices", prices));
        }
        if let Some(holds) = &state.customers.holds {
            let row = HoldsRow { account: account.id, holds: Arc::clone(holds) };
            add(&mut hasher, &("holds", row));
        }
        let inner = |spending: &KeySpend| (spending.limits, spending.spent);
        let spendings: HashMap<_, _> = state
            .spendings
            .iter()
            .map(|(key, spending)| (key, inner(spending)))
            .filter(|(_, recorded_now)| *recorded_now != inner(&KeySpend::default()))
            .collect();
        add_sorted(&mut hasher, spendings.iter());
    }
    add(&mut hasher, &cores.clone().map(|core| core.operator.followed).max());
    let codes: HashMap<_, _> = cores.clone().flat_map(|core| &core.operator.codes).collect();
    add_sorted(&mut hasher, codes.iter().map(|(id, state)| (*id, &state.code)));
    for (id, state) in codes.iter().collect::<std::collections::BTreeMap<_, _>>() {
        add(&mut hasher, &(id, state.revoked_at));
        add_sorted(&mut hasher, state.uses.iter());
    }
    let groups: Vec<_> = cores.clone().flat_map(|core| core.operator.groups.values()).collect();
    if !groups.is_empty() {
        add(&mut hasher, &("price groups", groups));
    }
    add_sorted(&mut hasher, cores.clone().flat_map(|core| core.tasks.iter()));
    add_sorted(&mut hasher, cores.flat_map(|core| core.holds.iter()));
    hasher.finalize().into()
}

/// Adds an act with its place.
pub(crate) fn add_act(hasher: &mut Sha256, seq: Seq, act: &Act) {
    add(hasher, &(seq, act));
}

fn add_sorted<'a, K: Ord + Serialize + 'a, V: Serialize + 'a>(
    hasher: &mut Sha256,
    pairs: impl Iterator<Item = (&'a K, &'a V)>,
) {
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_by(|a, b| a.0.cmp(b.0));
    add(hasher, &pairs);
}

/// Adds one value with its length, so that no two sequences of values give the same bytes.
fn add(hasher: &mut Sha256, value: &impl Serialize) {
    // Encoding into memory fails for no type that is used here; an empty value would only make the
    // hash differ, which is the safe side.
    let bytes = postcard::to_stdvec(value).unwrap_or_default();
    hasher.update(bytes.len().to_le_bytes());
    hasher.update(bytes);
}
