//! Writes of a fleet's node. Every write goes to the fleet's directory first; each node then commits it to
//! its own journal, its own writes and those of others in one order.
//!
//! Grants and refunds move money in the treasury, in the transaction that appends them. Here they are
//! recorded as [`Record::Central`] and move nothing.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::memory::Ledger;
use crate::memory::act::ActorScope;
use crate::memory::write::{AuditRecordBuilder, IdempotentOutcome, LockedShards, WriteDecision};
use crate::ports::writes::{AppendOutcome, WriteGroup, WriteLog, WriteTurn};
use crate::records::error::{LedgerError, Violation};
use crate::records::record::Record;
use crate::rules::core::Core;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, Seq, WriteId};

/// Maximum time for a write in a fleet, including its retries after other nodes wrote first: a
/// thousand round trips.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// After each write of another node that came before, the wait before the next try is random below
/// this: so that of many nodes none is always the slowest.
const WAIT_MAX: Duration = Duration::from_millis(10);

/// A write decided on the state that this node has followed so far.
enum PreparedWrite<T> {
    /// It was made before, or changes nothing.
    Settled(IdempotentOutcome<T>),
    /// This is to be written behind `after`.
    New { value: T, records: Vec<Record>, after: Seq },
}

impl Ledger {
    /// The log that this ledger follows with others; `None` when it has none beside it.
    pub(crate) fn write_log(&self) -> Option<&dyn WriteLog> {
        self.fleet.as_ref().map(|funds| funds.writes())
    }

    /// Position of the last applied directory entry; zero in a single gateway.
    #[must_use]
    pub fn followed(&self) -> Seq {
        self.lock([]).operator().followed
    }

    /// Applies what other nodes have written so far, and returns the number of writes.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] and [`LedgerError::Stopped`].
    pub async fn catch_up(&self) -> Result<usize, LedgerError> {
        let Some(directory) = self.write_log() else { return Ok(0) };
        let turn = directory.turn().await;
        self.catch_up_in(directory, &turn).await
    }

    async fn catch_up_in(
        &self,
        directory: &dyn WriteLog,
        turn: &WriteTurn<'_>,
    ) -> Result<usize, LedgerError> {
        let mut count = 0_usize;
        loop {
            let page = directory.pull(turn, self.followed()).await?;
            count = count.saturating_add(page.groups.len());
            for group in page.groups {
                // Rehearsed before it is taken over, since a half-applied group cannot be taken back.
                if let Err(violation) = self.rehearse(&group.records) {
                    let why =
                        format!("what stands at {} is not allowed here: {violation}", group.seq);
                    return Err(directory.stop(why));
                }
                self.take_over(turn, group)?;
            }
            if page.is_last {
                return Ok(count);
            }
        }
    }

    /// Checks another node's write against the rules of this version, on a copy of the state it
    /// touches. A newer node may have other rules, and a violation must not stop this one.
    fn rehearse(&self, records: &[Record]) -> Result<(), Violation> {
        let locked = self.lock(records.iter().map(Record::account));
        let mut copy = Core { operator: locked.operator().excerpt(records), ..Core::default() };
        for record in records {
            let account = record.account();
            if let Ok(state) = locked.state(account) {
                copy.accounts.entry(account).or_insert_with(|| state.excerpt(records));
            }
        }
        drop(locked);
        records.iter().try_for_each(|record| copy.apply(0, record))
    }

    /// Commits a write of the directory, and that it was followed, as one group. Gives the place of the
    /// write's last record.
    fn take_over(&self, _turn: &WriteTurn<'_>, group: WriteGroup) -> Result<Seq, LedgerError> {
        let WriteGroup { seq, mut records } = group;
        let mut locked = self.lock(records.iter().map(Record::account));
        // The position is in the same group as the records, or a crash could apply them twice.
        records.push(Record::Followed { seq, at: UnixMs::now() });
        let last = self.commit_group(&mut locked, records)?;
        Ok(last.saturating_sub(1))
    }

    /// Looks something up locally; if absent in a fleet, follows the directory to its end and looks
    /// again.
    pub(crate) async fn fresh<T>(
        &self,
        look: impl Fn() -> Option<T>,
    ) -> Result<Option<T>, LedgerError> {
        if let Some(found) = look() {
            return Ok(Some(found));
        }
        self.catch_up().await?;
        Ok(look())
    }
}

impl ActorScope<'_> {
    /// Makes a write of a fleet node: decides on the directory as applied so far, appends the write, and
    /// applies it. If other writes came first, it applies them and decides again. A refusal is final only if
    /// no other write came first.
    pub(crate) async fn write_shared<T>(
        &self,
        directory: &dyn WriteLog,
        (what, account): (&'static str, AccountId),
        decide: impl Fn(&LockedShards<'_>, &AuditRecordBuilder<'_>) -> WriteDecision<T>,
    ) -> Result<IdempotentOutcome<T>, LedgerError> {
        let (ledger, begun) = (self.ledger, Instant::now());
        let (audit, write_id) =
            (AuditRecordBuilder::new(self, what), WriteId::random().to_string());
        let busy = |_| LedgerError::Unavailable("other writes of this node wait for it".to_owned());
        let turn = tokio::time::timeout(WRITE_TIMEOUT, directory.turn()).await.map_err(busy)?;
        loop {
            match self.draw(&audit, (what, account), &decide) {
                Ok(PreparedWrite::Settled(once)) => return Ok(once),
                Ok(PreparedWrite::New { value, records, after }) => {
                    // Appended to the shared log before it is committed here: if the process dies in
                    // between, it follows the log at its next start and commits the write then.
                    let appended = directory.append(&turn, after, &write_id, &records).await;
                    match appended? {
                        AppendOutcome::Appended(seq) => {
                            let last = ledger.take_over(&turn, WriteGroup { seq, records })?;
                            return Ok(IdempotentOutcome::Applied(value, last));
                        }
                        AppendOutcome::Refused(refused) => return Err(refused),
                        AppendOutcome::Behind => ledger.catch_up_in(directory, &turn).await?,
                    };
                }
                Err(refusal) => {
                    // The refusal may rest on a stale state; it counts only at the end of the log.
                    if ledger.catch_up_in(directory, &turn).await? == 0 {
                        return Err(refusal);
                    }
                }
            }
            if begun.elapsed() >= WRITE_TIMEOUT {
                let busy = "other nodes were faster for too long; nothing was changed";
                return Err(LedgerError::Unavailable(busy.to_owned()));
            }
            tokio::time::sleep(WAIT_MAX.mul_f64(fastrand::f64())).await;
        }
    }

    fn draw<T>(
        &self,
        audit: &AuditRecordBuilder<'_>,
        (what, account): (&'static str, AccountId),
        decide: &impl Fn(&LockedShards<'_>, &AuditRecordBuilder<'_>) -> WriteDecision<T>,
    ) -> Result<PreparedWrite<T>, LedgerError> {
        let mut locked = self.ledger.lock([account]);
        if let Some((account, subject, seq)) = self.done(what, account)? {
            return Ok(PreparedWrite::Settled(IdempotentOutcome::Replayed {
                account,
                subject,
                seq,
            }));
        }
        let (value, records) = decide(&locked, audit)?;
        if records.is_empty() {
            let seen = self.ledger.commit_group(&mut locked, records)?;
            return Ok(PreparedWrite::Settled(IdempotentOutcome::Applied(value, seen)));
        }
        let records = records.into_iter().map(central).collect();
        Ok(PreparedWrite::New { value, records, after: locked.operator().followed })
    }
}

/// Strips a record of its money for a node of a fleet: there the treasury has the money and the
/// list of doubts.
pub(crate) fn central(record: Record) -> Record {
    match record {
        Record::Granted { .. }
        | Record::Refunded { .. }
        | Record::WrittenOff { .. }
        | Record::CreditSet { .. }
        | Record::DoubtResolved { .. } => Record::Central(Arc::new(record)),
        record => record,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::key::Key;
    use crate::records::key_limits::KeyLimits;
    use tollgate_money::money::Nanousd;
    use tollgate_types::ids::{HoldId, KeyId};
    use tollgate_types::secret::KeyHash;

    const MANY: u64 = 20_000;

    fn key(account: AccountId, number: u64, hash: &[u8]) -> Arc<Key> {
        Arc::new(Key {
            id: KeyId::from_number(number),
            account,
            hash: KeyHash::of(hash),
            name: "k".to_owned(),
            models: None,
            expires_at: None,
            disabled: false,
            created_at: UnixMs(1),
            updated_at: UnixMs(1),
        })
    }

    fn grant(account: AccountId, number: u64) -> Record {
        let (id, amount, at) = (format!("grant-{number}"), Nanousd::new(1), UnixMs(1));
        central(Record::Granted { account, id, amount, at })
    }

    fn refund(account: AccountId, number: u64, hold: u64) -> Record {
        let (id, hold) = (format!("refund-{number}"), HoldId::from_number(hold));
        let (amount, charged, at) = (Nanousd::new(6), Nanousd::new(10), UnixMs(1));
        central(Record::Refunded { account, id, hold, amount, charged, at })
    }

    /// A customer's number of keys, grants and refunds affects neither the correctness nor the
    /// speed of following: calls of the same account wait for it.
    #[test]
    fn a_write_is_rehearsed_on_what_it_touches() {
        let account = AccountId::from_number(1);
        let (name, at) = ("a".to_owned(), UnixMs(1));
        let mut core = Core::default();
        core.apply(0, &Record::AccountCreated { account, name, at }).expect("new");
        for number in 0..MANY {
            let key = key(account, number, &number.to_be_bytes());
            core.apply(0, &Record::KeyCreated(key)).expect("new");
            core.apply(0, &grant(account, number)).expect("new");
            core.apply(0, &refund(account, number, number)).expect("new");
        }
        let limited = |number| {
            let (key, limits, at) = (KeyId::from_number(number), KeyLimits::default(), UnixMs(2));
            Record::KeyLimited { account, key, limits, at }
        };
        let groups = [
            (vec![grant(account, MANY), grant(account, MANY)], false),
            (vec![grant(account, MANY), refund(account, MANY, MANY)], true),
            (vec![grant(account, 5)], false),
            (vec![refund(account, 5, MANY)], false),
            (vec![refund(account, MANY, 5)], false),
            (vec![Record::KeyCreated(key(account, 5, b"5"))], false),
            (vec![Record::KeyUpdated(key(account, 5, &5_u64.to_be_bytes()))], true),
            (vec![Record::KeyUpdated(key(account, MANY, b"new"))], false),
            (vec![Record::KeyCreated(key(account, MANY, b"new")), limited(MANY)], true),
            (vec![limited(5)], true),
            (vec![limited(MANY)], false),
        ];
        let state = core.accounts.get(&account).expect("the account");
        for (group, is_allowed) in &groups {
            let excerpt = state.excerpt(group);
            let held = [excerpt.keys.len(), excerpt.grants.len(), excerpt.refunds.len()];
            assert!(held.iter().all(|held| *held <= group.len()), "{held:?} for {group:?}");
            let mut copy = Core::default();
            copy.accounts.insert(account, excerpt);
            let rehearsed = group.iter().try_for_each(|record| copy.apply(0, record));
            assert_eq!(rehearsed.is_ok(), *is_allowed, "{group:?}: {rehearsed:?}");
        }
    }
}
