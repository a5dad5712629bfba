//! Who did what: one [`Act`] beside each write of an operator or a customer, in the same group.
//!
//! A write that carries an id of its caller's happens once: the same id again, with the same request,
//! gives the result of the first, and with another request is refused.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::UnixMs;
use crate::ledger::error::LedgerError;
use crate::ledger::record::Record;
use crate::ledger::store::Store;
use crate::ledger::task::is_recent;
use crate::ledger::{AccountId, Ledger, Seq};

/// How long a write's id is remembered: a caller that has not heard of its write for a week looks
/// before it writes again. The ids of grants and refunds are kept for ever.
pub const IDS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// The most acts that one query gives.
const ACTS_MAX: usize = 1000;

/// Who did something.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Actor {
    /// An operator, by the name of the token or session.
    Operator(Arc<str>),
    /// The customer whose account it is.
    Customer,
    /// The gateway itself: a start, a test, the demo.
    Gateway,
}

impl Actor {
    /// The operator of this name.
    #[must_use]
    pub fn operator(name: &str) -> Self {
        Self::Operator(name.into())
    }

    /// The word for the kind of actor, in logs and the API.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Operator(_) => "operator",
            Self::Customer => "customer",
            Self::Gateway => "gateway",
        }
    }

    /// The operator's name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Operator(name) => Some(name),
            Self::Customer | Self::Gateway => None,
        }
    }
}

/// The request that a write came with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// What the caller calls the write: the same id is done once. At most 256 bytes.
    pub id: Option<String>,
    /// The SHA-256 of the request: what tells whether two with the same id ask for the same.
    pub digest: [u8; 32],
}

/// One thing that someone did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// On which account; the house's where it is no customer's.
    pub account: AccountId,
    /// Who.
    pub by: Actor,
    /// What, in a short word such as `account.create`.
    pub what: String,
    /// The id of the thing that was written.
    pub subject: String,
    /// What the caller calls the write.
    pub id: Option<String>,
    /// The SHA-256 of the request; zeros where there was none.
    pub digest: [u8; 32],
    /// When.
    pub at: UnixMs,
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
    pub(super) ledger: &'a Ledger,
    pub(super) actor: Actor,
    asked: Asked,
}

impl Ledger {
    /// Writes of `actor`.
    #[must_use]
    pub fn by(&self, actor: &Actor) -> By<'_> {
        By { ledger: self, actor: actor.clone(), asked: Asked::default() }
    }

    /// Writes of nobody in particular.
    pub(super) fn by_gateway(&self) -> By<'_> {
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

/// What a call of [`By::once`] comes to.
pub(super) enum Once<T> {
    /// It happened now, and the last record of it has this place.
    First(T, Seq),
    /// It happened before, to the thing of this id.
    Again { account: AccountId, subject: String, seq: Seq },
}

/// Acts that are recognised when they are repeated.
#[derive(Debug, Default)]
pub(super) struct Ids(HashMap<(Actor, AccountId, String), Done>);

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
    pub(super) fn remember(&mut self, seq: Seq, act: &Act) {
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
    pub(super) fn forget(&mut self, now: UnixMs) {
        self.0.retain(|_, done| is_recent(done.at, (now, IDS_KEPT)));
    }
}

/// Where a write puts down who made it.
pub(super) struct Pen<'a> {
    by: &'a By<'a>,
    what: &'static str,
    at: UnixMs,
    act: Option<Arc<Act>>,
}

impl Pen<'_> {
    /// The record of the act, on this account and about this thing.
    pub(super) fn act(&mut self, account: AccountId, subject: impl ToString) -> Record {
        let act = Arc::new(Act {
            account,
            by: self.by.actor.clone(),
            what: self.what.to_owned(),
            subject: subject.to_string(),
            id: self.by.asked.id.clone(),
            digest: self.by.asked.digest,
            at: self.at,
        });
        self.act = Some(Arc::clone(&act));
        Record::Acted(act)
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
        Ok(self.done(&self.ledger.ids.lock(), what, account)?.is_some())
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
        let noted = self.once(what, account, |pen| {
            let mut core = self.ledger.shard(account).lock();
            if account != AccountId::HOUSE && core.account(account).is_none() {
                return Err(LedgerError::UnknownAccount(account));
            }
            let act = pen.act(account, subject);
            Ok(((), self.ledger.commit(&mut core, act)?))
        });
        let written = match &noted? {
            Once::First((), seq) => (*seq, false),
            Once::Again { seq, .. } => (*seq, true),
        };
        self.ledger.journal.durable(written.0).await?;
        Ok(Written { value: (), repeated: written.1 })
    }

    /// Makes a write, unless this caller made it before under the same id. `write` commits records
    /// that end with the pen's act and gives the place of the last. Writes that carry an id come one
    /// after the other; operators make few.
    pub(super) fn once<T>(
        &self,
        what: &'static str,
        account: AccountId,
        write: impl FnOnce(&mut Pen<'_>) -> Result<(T, Seq), LedgerError>,
    ) -> Result<Once<T>, LedgerError> {
        let at = UnixMs::now();
        let mut pen = Pen { by: self, what, at, act: None };
        if self.asked.id.is_none() {
            return write(&mut pen).map(|(value, seq)| Once::First(value, seq));
        }
        let mut ids = self.ledger.ids.lock();
        if let Some(done) = self.done(&ids, what, account)? {
            let (account, subject) = (done.account, done.subject.clone());
            return Ok(Once::Again { account, subject, seq: done.seq });
        }
        let (value, seq) = write(&mut pen)?;
        if let Some(act) = pen.act {
            ids.remember(seq, &act);
        }
        Ok(Once::First(value, seq))
    }

    fn done<'i>(
        &self,
        ids: &'i Ids,
        what: &str,
        account: AccountId,
    ) -> Result<Option<&'i Done>, LedgerError> {
        let Some(id) = &self.asked.id else { return Ok(None) };
        super::admin::check_text(id)?;
        let known = ids.0.get(&(self.actor.clone(), scope(&self.actor, account), id.clone()));
        match known.filter(|done| is_recent(done.at, (UnixMs::now(), IDS_KEPT))) {
            Some(done) if done.digest != self.asked.digest || done.what != what => {
                Err(LedgerError::OtherRequest)
            }
            known => Ok(known),
        }
    }
}
