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
    pub(super) asked: Asked,
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
    pub(super) fn done(
        &self,
        what: &str,
        account: AccountId,
    ) -> Result<Option<(AccountId, String, Seq)>, LedgerError> {
        let Some(id) = &self.asked.id else { return Ok(None) };
        super::admin::check_text(id)?;
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
