//! Writes of operators and customers: decided under locks and committed as one group.
//!
//! A decision reads the locked state and returns the records of the write. It changes nothing and may run
//! several times, so ids and secrets are generated outside of it. [`ActorScope::write`] takes the locks,
//! decides, commits, and waits for the disk. Indexes in memory follow from the records, whoever commits
//! them: see [`Ledger::reflect`].
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::files::fatal::fatal;
use crate::journal::JournalStopped;
use crate::memory::Ledger;
use crate::memory::act::ActorScope;
use crate::records::act::Act;
use crate::records::error::LedgerError;
use crate::records::record::Record;
use crate::rules::core::{AccountState, Core};
use crate::rules::operator::OperatorState;
use crate::rules::shards::shard_index;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, Seq};

/// Outcome of [`ActorScope::write`]: a new write, or the repetition of an earlier one.
pub(crate) enum IdempotentOutcome<T> {
    /// The write was made now; the position is that of its last record.
    Applied(T, Seq),
    /// The write was made before, to the object with this id.
    Replayed { account: AccountId, subject: String, seq: Seq },
}

impl<T> IdempotentOutcome<T> {
    /// The place of the last record, and whether it was written before.
    pub(crate) fn place(&self) -> (Seq, bool) {
        match self {
            Self::Applied(_, seq) => (*seq, false),
            Self::Replayed { seq, .. } => (*seq, true),
        }
    }
}

/// Decision of a write: the value for its caller and the records to commit. The audit record comes
/// after the changes it describes; without records nothing happens.
pub(crate) type WriteDecision<T> = Result<(T, Vec<Record>), LedgerError>;

/// Adds an audit record with the actor to a write.
pub(crate) struct AuditRecordBuilder<'a> {
    by: &'a ActorScope<'a>,
    what: &'static str,
    at: UnixMs,
}

impl<'a> AuditRecordBuilder<'a> {
    pub(crate) fn new(by: &'a ActorScope<'a>, what: &'static str) -> Self {
        Self { by, what, at: UnixMs::now() }
    }

    /// Time of the write.
    pub(crate) fn at(&self) -> UnixMs {
        self.at
    }

    /// The record of the act, on this account and about this thing.
    pub(crate) fn act(&self, account: AccountId, subject: impl ToString) -> Record {
        Record::Acted(Arc::new(Act {
            account,
            by: self.by.actor.clone(),
            what: self.what.to_owned(),
            subject: subject.to_string(),
            id: self.by.idempotency.id.clone(),
            digest: self.by.idempotency.digest,
            at: self.at,
        }))
    }
}

/// Locked shards of some accounts and of the operator, in the order of their indexes: the operator's is
/// the first.
pub(crate) struct LockedShards<'a> {
    shards: Vec<(usize, MutexGuard<'a, Core>)>,
}

impl LockedShards<'_> {
    /// Core of one of the accounts.
    pub(crate) fn core(&self, account: AccountId) -> &Core {
        let place = shard_index(account);
        match self.shards.iter().find(|(locked, _)| *locked == place) {
            Some((_, core)) => core,
            None => fatal("a write looks at an account that it has not locked"),
        }
    }

    fn core_mut(&mut self, account: AccountId) -> &mut Core {
        let place = shard_index(account);
        match self.shards.iter_mut().find(|(locked, _)| *locked == place) {
            Some((_, core)) => core,
            None => fatal("a write changes an account that it has not locked"),
        }
    }

    /// State that belongs to the operator.
    pub(crate) fn operator(&self) -> &OperatorState {
        &self.core(AccountId::OPERATOR).operator
    }

    /// State of one of the accounts.
    ///
    /// # Errors
    /// [`LedgerError::UnknownAccount`].
    pub(crate) fn state(&self, account: AccountId) -> Result<&AccountState, LedgerError> {
        let state = self.core(account).accounts.get(&account);
        state.ok_or(LedgerError::UnknownAccount(account))
    }
}

impl Ledger {
    /// Locks the operator's shard and those of these accounts.
    pub(crate) fn lock(&self, accounts: impl IntoIterator<Item = AccountId>) -> LockedShards<'_> {
        let mut places: BTreeSet<_> = accounts.into_iter().map(shard_index).collect();
        // Always, also where it is not written to: this lock is what makes writes one after the other.
        places.insert(shard_index(AccountId::OPERATOR));
        // Sorted by index through the set: any other order could deadlock with another write.
        let shards = places.into_iter().map(|place| (place, self.shards[place].lock())).collect();
        LockedShards { shards }
    }

    /// Commits records of locked accounts as one group, and gives the place of the last; without any,
    /// the place behind which all that was seen is on disk.
    pub(crate) fn commit_group(
        &self,
        locked: &mut LockedShards<'_>,
        records: Vec<Record>,
    ) -> Result<Seq, JournalStopped> {
        let together = self.journal.atomic_group()?;
        let (mut last, mut touched) = (None, BTreeSet::new());
        for record in records {
            let account = record.account();
            touched.insert(account);
            last = Some(self.commit(locked.core_mut(account), record)?);
        }
        // Still within the group, for the same reason as in `commit_all`.
        for account in touched {
            self.pay_debt(locked.core_mut(account), account);
        }
        drop(together);
        // What was seen may be in memory alone, and an answer must not outlive a crash that its cause
        // did not.
        Ok(last.unwrap_or_else(|| self.journal.last_seq()))
    }

    /// Brings what memory keeps beside the cores up to a record that is about to be applied to
    /// `core`, its account's. Who sees the one before the other meets the shard's lock.
    pub(crate) fn reflect(&self, core: &Core, seq: Seq, record: &Record) {
        match record {
            Record::KeyCreated(key) | Record::KeyUpdated(key) => {
                self.keys.write().insert(Arc::clone(key));
            }
            Record::AccountCreated { account, at, .. } => {
                self.account_places.write().insert((*at, *account));
            }
            Record::KeyLimited { key, limits, .. } => self.keys.write().limit(*key, *limits),
            Record::AccountLimited { account, rates, .. } => {
                self.keys.write().rates.insert(*account, *rates);
            }
            Record::AccountPriced { account, prices, .. } => {
                self.keys.write().price(*account, prices);
            }
            Record::AccountHolds { account, holds, .. } => {
                self.keys.write().hold_by(*account, holds);
            }
            Record::GroupPriced(group) => {
                self.keys.write().groups.insert(group.name.clone(), Arc::clone(group));
            }
            Record::AccountSuspended { account, suspended, .. } => {
                let mut keys = self.keys.write();
                if *suspended {
                    keys.suspended.insert(*account);
                } else {
                    keys.suspended.remove(account);
                }
            }
            Record::LoginSet(login) => {
                let state = core.accounts.get(&login.account);
                let before = state.and_then(|state| state.customers.login.as_ref());
                let mut emails = self.emails.lock();
                if let Some(before) = before {
                    // Before the new one: both may be the same address.
                    emails.remove(&before.email);
                }
                emails.insert(login.email.clone(), login.account);
            }
            Record::Acted(act) if act.id.is_some() => self.ids.lock().remember(seq, act),
            // The rest, and so all that calls write, is in the core alone.
            _ => {}
        }
    }
}

impl ActorScope<'_> {
    /// Makes a write on an account, unless this caller made it before with the same id, and waits until it is
    /// on disk: a repeated request may overtake the flush of the first.
    pub(crate) async fn write<T>(
        &self,
        what: &'static str,
        account: AccountId,
        decide: impl Fn(&LockedShards<'_>, &AuditRecordBuilder<'_>) -> WriteDecision<T>,
    ) -> Result<IdempotentOutcome<T>, LedgerError> {
        let once = match self.ledger.write_log() {
            Some(directory) => self.write_shared(directory, (what, account), decide).await?,
            None => self.write_now(what, account, decide)?,
        };
        self.ledger.journal.durable(once.place().0).await?;
        Ok(once)
    }

    /// The same, without waiting for the disk. Writes are serialised by the lock of the operator's shard;
    /// they are few.
    pub(crate) fn write_now<T>(
        &self,
        what: &'static str,
        account: AccountId,
        decide: impl Fn(&LockedShards<'_>, &AuditRecordBuilder<'_>) -> WriteDecision<T>,
    ) -> Result<IdempotentOutcome<T>, LedgerError> {
        let audit = AuditRecordBuilder::new(self, what);
        // The idempotency key is looked up under the locks: a repeated request that runs at the same time
        // waits here, and then finds the first one's audit record.
        let mut locked = self.ledger.lock([account]);
        if let Some((account, subject, seq)) = self.done(what, account)? {
            return Ok(IdempotentOutcome::Replayed { account, subject, seq });
        }
        let (value, records) = decide(&locked, &audit)?;
        Ok(IdempotentOutcome::Applied(value, self.ledger.commit_group(&mut locked, records)?))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::memory::act::IdempotencyKey;
    use crate::records::act::Actor;
    use crate::records::key::Key;
    use crate::records::key_limits::KeyLimits;
    use crate::records::login::Login;
    use crate::{NewKey, Options};
    use tollgate_types::limit::Rates;

    fn login(account: AccountId, email: &str) -> Record {
        let password = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaA".to_owned();
        Record::LoginSet(Arc::new(Login {
            account,
            email: email.to_owned(),
            password,
            since: UnixMs(9),
        }))
    }

    /// Records that no write of this process decided take effect all the same.
    #[tokio::test]
    async fn what_memory_keeps_beside_the_cores_follows_from_the_records() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ledger, _) = Ledger::open(Options::new(dir.path())).expect("opens");
        let account = ledger.create_account("a").await.expect("creates").id;
        let (_, key) = ledger
            .create_key(account, NewKey { name: "k".to_owned(), ..NewKey::default() })
            .await
            .expect("creates");
        let rates = Rates { requests_per_minute: NonZeroU32::new(7), ..Rates::NONE };
        let limits = KeyLimits { rates, ..KeyLimits::default() };
        let at = UnixMs(9);
        let changed = Arc::new(Key { disabled: true, ..Key::clone(&key) });
        let act = Act {
            account,
            by: Actor::Gateway,
            what: "key.update".to_owned(),
            subject: key.id.to_string(),
            id: Some("one".to_owned()),
            digest: [1; 32],
            at: UnixMs::now(),
        };
        let records = vec![
            Record::KeyUpdated(changed),
            Record::KeyLimited { account, key: key.id, limits, at },
            Record::AccountLimited { account, rates, at },
            Record::AccountSuspended { account, suspended: true, at },
            login(account, "old@example.com"),
            login(account, "new@example.com"),
            Record::Acted(Arc::new(act)),
        ];
        let seq = ledger.commit_group(&mut ledger.lock([account]), records).expect("open");
        let (found, is_suspended) = ledger.presented(&key.hash).expect("is known");
        assert!(found.disabled && is_suspended);
        assert_eq!(ledger.rates(&key), (rates, rates));
        assert_eq!(
            ledger.login_by_email("new@example.com").map(|login| login.account),
            Some(account)
        );
        assert_eq!(ledger.emails.lock().len(), 1, "the old address is free");
        let key_of_write = IdempotencyKey { id: Some("one".to_owned()), digest: [1; 32] };
        let by = ledger.by(&Actor::Gateway).with_idempotency_key(key_of_write);
        let done = by.done("key.update", account).expect("the same request");
        assert_eq!(done, Some((account, key.id.to_string(), seq)));
        let resumed = Record::AccountSuspended { account, suspended: false, at };
        ledger.commit_group(&mut ledger.lock([account]), vec![resumed]).expect("open");
        assert_eq!(ledger.presented(&key.hash).map(|(_, is_suspended)| is_suspended), Some(false));
    }
}
