//! Who did what: one [`Act`] beside each write of an operator or a customer, in the same group.
//!
//! A write that carries an id of its caller's happens once: the same id again, with the same request,
//! gives the result of the first, and with another request is refused.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use crate::records::act::Act;
use crate::records::act::Actor;
use crate::records::act::IDS_KEPT;
use crate::rules::text::check_text;
use std::collections::HashMap;

use crate::memory::ledger::Ledger;
use crate::projection::store::Store;
use crate::records::error::LedgerError;
use crate::rules::submit::is_recent;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, Seq};

/// The most acts that one query gives.
const ACTS_MAX: usize = 1000;

/// The request that a write came with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// What the caller calls the write: the same id is done once. At most 256 bytes.
    pub id: Option<String>,
    /// The SHA-256 of the request: what tells whether two with the same id ask for the same.
    pub digest: [u8; 32],
}

/// An act with its place in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedAct {
    /// What the next page is asked for with.
    pub seq: Seq,
    /// The act.
    pub act: Act,
}

/// What a write gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written<T> {
    /// What was written, as it is now.
    pub value: T,
    /// Whether it was done by an earlier call with the same id; nothing happened now.
    pub repeated: bool,
}

/// An operator or customer at work: every write that is made through it says who made it.
#[derive(Clone, Debug)]
pub struct By<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) actor: Actor,
    pub(crate) asked: Asked,
}

impl Ledger {
    /// Writes of `actor`.
    #[must_use]
    pub fn by(&self, actor: &Actor) -> By<'_> {
        By { ledger: self, actor: actor.clone(), asked: Asked::default() }
    }

    /// Writes of nobody in particular.
    pub(crate) fn by_gateway(&self) -> By<'_> {
        self.by(&Actor::Gateway)
    }

    /// At most `limit` (and never more than 1,000) acts from before `before`, newest first: those on
    /// one account, or all.
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

/// Acts that are recognised when they are repeated.
#[derive(Debug, Default)]
pub(crate) struct Ids(HashMap<(Actor, AccountId, String), Done>);

#[derive(Debug)]
struct Done {
    what: String,
    account: AccountId,
    subject: String,
    digest: [u8; 32],
    at: UnixMs,
    seq: Seq,
}

/// Ids of operators are their own, whatever they are about; those of a customer are the account's.
fn scope(actor: &Actor, account: AccountId) -> AccountId {
    if *actor == Actor::Customer { account } else { AccountId::HOUSE }
}

impl Ids {
    /// Takes over an act that stands in the journal.
    pub(crate) fn remember(&mut self, seq: Seq, act: &Act) {
        let Some(id) = act.id.clone() else { return };
        let done = Done {
            what: act.what.clone(),
            account: act.account,
            subject: act.subject.clone(),
            digest: act.digest,
            at: act.at,
            seq,
        };
        self.0.insert((act.by.clone(), scope(&act.by, act.account), id), done);
    }

    /// Forgets those whose time is over.
    pub(crate) fn forget(&mut self, now: UnixMs) {
        self.0.retain(|_, done| is_recent(done.at, (now, IDS_KEPT)));
    }
}

impl By<'_> {
    /// The same for a request that may be repeated.
    #[must_use]
    pub fn asked(self, asked: Asked) -> Self {
        Self { asked, ..self }
    }

    /// Whether this write was made before. The answer holds as long as nobody makes it meanwhile.
    ///
    /// # Errors
    /// [`LedgerError::OtherRequest`].
    pub fn was_done(&self, what: &'static str, account: AccountId) -> Result<bool, LedgerError> {
        Ok(self.done(what, account)?.is_some())
    }

    /// Notes what was done outside of the ledger. It is on disk before this returns.
    ///
    /// # Errors
    /// [`LedgerError::OtherRequest`], [`LedgerError::Invalid`] and [`LedgerError::Stopped`].
    pub async fn note(
        &self,
        what: &'static str,
        account: AccountId,
        subject: &str,
    ) -> Result<Written<()>, LedgerError> {
        let noted = self.write(what, account, |locked, pen| {
            if account != AccountId::HOUSE {
                locked.state(account)?;
            }
            Ok(((), vec![pen.act(account, subject)]))
        });
        Ok(Written { value: (), repeated: noted.await?.place().1 })
    }

    /// The write that this caller made before under the same id: on which account, on what and
    /// where its act stands.
    pub(crate) fn done(
        &self,
        what: &str,
        account: AccountId,
    ) -> Result<Option<(AccountId, String, Seq)>, LedgerError> {
        let Some(id) = &self.asked.id else { return Ok(None) };
        check_text(id)?;
        let ids = self.ledger.ids.lock();
        let known = ids.0.get(&(self.actor.clone(), scope(&self.actor, account), id.clone()));
        match known.filter(|done| is_recent(done.at, (UnixMs::now(), IDS_KEPT))) {
            Some(done) if done.digest != self.asked.digest || done.what != what => {
                Err(LedgerError::OtherRequest)
            }
            known => Ok(known.map(|done| (done.account, done.subject.clone(), done.seq))),
        }
    }
}
