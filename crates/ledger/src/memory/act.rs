//! Audit trail: one [`Act`] beside each write of an operator or a customer, in the same group.
//!
//! A write that carries an id of its caller's happens once: the same id again, with the same request,
//! gives the result of the first, and with another request is refused.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use crate::records::act::Act;
use crate::records::act::Actor;
use crate::records::act::IDS_KEPT;
use crate::rules::text::check_text;
use std::collections::HashMap;

use crate::memory::Ledger;
use crate::projection::store::Store;
use crate::records::error::LedgerError;
use crate::rules::submit::is_recent;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, Seq};

/// Maximum number of audit records per query.
const ACTS_MAX: usize = 1000;

/// Idempotency key of a write, and the digest of its request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// Idempotency key chosen by the caller; at most 256 bytes. A repeated key has no second
    /// effect.
    pub id: Option<String>,
    /// SHA-256 of the request: a repeated key with another digest is refused.
    pub digest: [u8; 32],
}

/// An audit record with its sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedAct {
    /// Cursor of the next page.
    pub seq: Seq,
    /// Write as the audit log records it.
    pub act: Act,
}

/// Result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOutcome<T> {
    /// The written object in its current state.
    pub value: T,
    /// True if an earlier call with the same idempotency key did the write; nothing happened now.
    pub repeated: bool,
}

/// Writes of one operator or customer: each is recorded with its author.
#[derive(Clone, Debug)]
pub struct ActorScope<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) actor: Actor,
    pub(crate) idempotency: IdempotencyKey,
}

impl Ledger {
    /// Scope for writes on behalf of `actor`.
    #[must_use]
    pub fn by(&self, actor: &Actor) -> ActorScope<'_> {
        ActorScope { ledger: self, actor: actor.clone(), idempotency: IdempotencyKey::default() }
    }

    /// Writes of the gateway itself.
    pub(crate) fn by_gateway(&self) -> ActorScope<'_> {
        self.by(&Actor::Gateway)
    }

    /// At most `limit` (and at most 1,000) audit records before `before`, newest first, of one account or
    /// all.
    ///
    /// # Errors
    /// [`LedgerError::Store`] and [`LedgerError::Stopped`].
    pub async fn acts(
        &self,
        account: Option<AccountId>,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Vec<ListedAct>, LedgerError> {
        let (before, limit) = (before.unwrap_or(Seq::MAX), limit.min(ACTS_MAX));
        let acts = move |store: &Store| store.acts(account, before, limit);
        let found = self.query(acts).await?;
        Ok(found.into_iter().map(|(seq, act)| ListedAct { seq, act }).collect())
    }
}

/// Index of writes by idempotency key.
#[derive(Debug, Default)]
pub(crate) struct IdempotencyIndex(HashMap<(Actor, AccountId, String), AppliedWrite>);

#[derive(Debug)]
struct AppliedWrite {
    what: String,
    account: AccountId,
    subject: String,
    digest: [u8; 32],
    at: UnixMs,
    seq: Seq,
}

/// Scope of an idempotency key: an operator's keys are valid across accounts, a customer's per account.
fn scope(actor: &Actor, account: AccountId) -> AccountId {
    if *actor == Actor::Customer { account } else { AccountId::OPERATOR }
}

impl IdempotencyIndex {
    /// Adds an audit record of the journal.
    pub(crate) fn remember(&mut self, seq: Seq, act: &Act) {
        let Some(id) = act.id.clone() else { return };
        let done = AppliedWrite {
            what: act.what.clone(),
            account: act.account,
            subject: act.subject.clone(),
            digest: act.digest,
            at: act.at,
            seq,
        };
        self.0.insert((act.by.clone(), scope(&act.by, act.account), id), done);
    }

    /// Removes expired keys of idempotent writes.
    pub(crate) fn forget(&mut self, now: UnixMs) {
        self.0.retain(|_, done| is_recent(done.at, now, IDS_KEPT));
    }
}

impl ActorScope<'_> {
    /// Attaches the idempotency key of the request.
    #[must_use]
    pub fn with_idempotency_key(self, idempotency: IdempotencyKey) -> Self {
        Self { idempotency, ..self }
    }

    /// True if this write was made before. The answer is valid until the same caller writes again.
    ///
    /// # Errors
    /// [`LedgerError::OtherRequest`].
    pub fn was_done(&self, what: &'static str, account: AccountId) -> Result<bool, LedgerError> {
        Ok(self.done(what, account)?.is_some())
    }

    /// Writes an audit record of an action outside of the ledger. Durable on return.
    ///
    /// # Errors
    /// [`LedgerError::OtherRequest`], [`LedgerError::Invalid`] and [`LedgerError::Stopped`].
    pub async fn note(
        &self,
        what: &'static str,
        account: AccountId,
        subject: &str,
    ) -> Result<WriteOutcome<()>, LedgerError> {
        let noted = self.write(what, account, |locked, audit| {
            if account != AccountId::OPERATOR {
                locked.state(account)?;
            }
            Ok(((), vec![audit.act(account, subject)]))
        });
        Ok(WriteOutcome { value: (), repeated: noted.await?.place().1 })
    }

    /// An earlier write of this caller with the same id: its account, its object and the position of its
    /// audit record.
    pub(crate) fn done(
        &self,
        what: &str,
        account: AccountId,
    ) -> Result<Option<(AccountId, String, Seq)>, LedgerError> {
        let Some(id) = &self.idempotency.id else { return Ok(None) };
        check_text(id)?;
        let ids = self.ledger.ids.lock();
        // The actor is part of the name: one customer must not learn of, or block, another's writes by a
        // guessed key.
        let found = ids.0.get(&(self.actor.clone(), scope(&self.actor, account), id.clone()));
        // Expired keys are removed by maintenance only, so one that lingers must not count longer than
        // promised.
        match found.filter(|done| is_recent(done.at, UnixMs::now(), IDS_KEPT)) {
            // A reused key with another body is a client's bug: to answer with the first result would
            // hide a lost write.
            Some(done) if done.digest != self.idempotency.digest || done.what != what => {
                Err(LedgerError::OtherRequest)
            }
            found => Ok(found.map(|done| (done.account, done.subject.clone(), done.seq))),
        }
    }
}
