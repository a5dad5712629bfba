//! What must hold of a whole state, and a name for it: its hash.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::HashMap;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::ledger::AccountId;
use crate::ledger::core::Core;
use crate::ledger::task::Task;
use crate::money::Nanousd;

/// The rules that the state of all accounts breaks: `granted = available + held + spent`, nothing
/// negative, `held` the sum of the open holds (I1–I3), and an open hold for every task that has not
/// ended. Empty when all is well.
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

/// A hash over everything that the state says, the same however the accounts are sharded.
#[must_use]
pub fn state_hash<'a>(cores: impl Iterator<Item = &'a Core> + Clone) -> [u8; 32] {
    let mut hasher = Sha256::new();
    let mut states: Vec<_> = cores.clone().flat_map(|core| core.accounts.values()).collect();
    states.sort_by_key(|state| state.account.id);
    for state in states {
        let account = &state.account;
        add(&mut hasher, &(account.id, &account.name, account.created_at));
        add(&mut hasher, &(account.balance, account.written_off));
        add_sorted(&mut hasher, state.keys.iter());
        add_sorted(&mut hasher, state.grants.iter());
        add_sorted(&mut hasher, state.refunds.iter());
    }
    add_sorted(&mut hasher, cores.clone().flat_map(|core| core.tasks.iter()));
    add_sorted(&mut hasher, cores.flat_map(|core| core.holds.iter()));
    hasher.finalize().into()
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
