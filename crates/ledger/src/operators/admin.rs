//! Writes of operators: accounts, grants, refunds and keys.
//!
//! Each of these is on disk before it returns.

use std::sync::Arc;

use crate::customers::limit::KeyLimitsPatch;
use crate::memory::Ledger;
use crate::memory::act::{ActorScope, WriteOutcome};
use crate::memory::write::{IdempotentOutcome, LockedShards};
use crate::records::error::LedgerError;
use crate::records::key::Key;
use crate::records::key_limits::KeyLimits;
use crate::records::record::Record;
use crate::rules::account::Account;
use crate::rules::core::Decision;
use crate::rules::key_rules::check_key_models;
use crate::rules::text::{check_text, parsed};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, CodeId, HoldId, KeyId, Seq};
use tollgate_types::secret::{KeyHash, Secret};

/// A grant or refund that is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteReceipt {
    /// Position in the journal.
    pub seq: Seq,
    /// True if an earlier call with the same id did the write; nothing happened now.
    pub repeated: bool,
}

/// Parameters of a new key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewKey {
    /// Name given by the owner.
    pub name: String,
    /// Models that the key may use; `None` for all.
    pub models: Option<Vec<String>>,
    /// Expiry; `None` for never.
    pub expires_at: Option<UnixMs>,
    /// Limits of the key.
    pub limits: KeyLimits,
}

/// Changes to a key; `None` leaves a field as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPatch {
    /// New display name of the key.
    pub name: Option<String>,
    /// New list of models; `Some(None)` for all.
    pub models: Option<Option<Vec<String>>>,
    /// Another end; `Some(None)` for never.
    pub expires_at: Option<Option<UnixMs>>,
    /// Switched off, or on again.
    pub disabled: Option<bool>,
    /// New limits of the key.
    pub limits: KeyLimitsPatch,
}

impl ActorScope<'_> {
    /// Opens an account without money.
    ///
    /// # Errors
    /// [`LedgerError::Invalid`] for a name that is empty or longer than 256 bytes,
    /// [`LedgerError::OtherRequest`] and [`LedgerError::Stopped`].
    pub async fn create_account(&self, name: &str) -> Result<WriteOutcome<Account>, LedgerError> {
        check_text(name)?;
        let (id, at) = (AccountId::random(), UnixMs::now());
        let once = self.write("account.create", id, |_, audit| {
            let created = Record::AccountCreated { account: id, name: name.to_owned(), at };
            Ok((id, vec![created, audit.act(id, id)]))
        });
        let once = once.await?;
        let (_, repeated) = once.place();
        let (IdempotentOutcome::Applied(id, _) | IdempotentOutcome::Replayed { account: id, .. }) =
            once;
        let value = self.ledger.account(id).ok_or(LedgerError::UnknownAccount(id))?;
        Ok(WriteOutcome { value, repeated })
    }

    /// Gives `amount` to an account, once per `id`: repeating a call is safe.
    ///
    /// # Errors
    /// [`LedgerError::Conflict`] when the id was used with another amount,
    /// [`LedgerError::UnknownAccount`], [`LedgerError::Invalid`], [`LedgerError::OtherRequest`] and
    /// [`LedgerError::Stopped`].
    pub async fn grant(
        &self,
        account: AccountId,
        id: &str,
        amount: Nanousd,
    ) -> Result<WriteReceipt, LedgerError> {
        check_text(id)?;
        if id.parse::<CodeId>().is_ok() {
            return Err(LedgerError::Invalid("ids of codes name what was given for them"));
        }
        let decide = |locked: &LockedShards<'_>| {
            locked.core(account).decide_grant(account, id, amount, UnixMs::now())
        };
        self.give(("grant", account, id), decide).await
    }

    /// Refunds `amount` of the charge of the settled `hold`, once per `id`.
    ///
    /// # Errors
    /// [`LedgerError::UnknownHold`] when the account has no settled hold of this id,
    /// [`LedgerError::RefundTooLarge`], and what [`ActorScope::grant`] fails with.
    pub async fn refund(
        &self,
        account: AccountId,
        id: &str,
        hold: HoldId,
        amount: Nanousd,
    ) -> Result<WriteReceipt, LedgerError> {
        check_text(id)?;
        let opened = self.ledger.fresh(|| self.ledger.account(account)).await?;
        opened.ok_or(LedgerError::UnknownAccount(account))?;
        let before = self.ledger.shard(account).lock().refund(account, id);
        let charged = match before {
            // Whether it is the same refund is decided below; its charge is not asked for again.
            Some(_) => Some(Nanousd::ZERO),
            None => self.ledger.charged(account, hold).await?,
        };
        let charged = charged.ok_or(LedgerError::UnknownHold(hold))?;
        let decide = |locked: &LockedShards<'_>| {
            let (core, at) = (locked.core(account), UnixMs::now());
            core.decide_refund((account, id), (hold, charged), amount, at)
        };
        self.give(("refund", account, id), decide).await
    }

    /// Makes an API key. The secret is shown this once, and not at all to a caller that repeats
    /// itself; only its hash is kept.
    ///
    /// # Errors
    /// [`LedgerError::UnknownAccount`], [`LedgerError::Invalid`], [`LedgerError::OtherRequest`] and
    /// [`LedgerError::Stopped`].
    pub async fn create_key(
        &self,
        account: AccountId,
        new: NewKey,
    ) -> Result<WriteOutcome<(Option<Secret>, Arc<Key>)>, LedgerError> {
        check_text(&new.name)?;
        check_key_models(new.models.as_deref())?;
        check_limits(&new.limits)?;
        let (secret, at) = (Secret::new_api_key(), UnixMs::now());
        let key = Arc::new(Key {
            id: KeyId::random(),
            account,
            hash: KeyHash::of(secret.expose().as_bytes()),
            name: new.name,
            models: new.models,
            expires_at: new.expires_at,
            disabled: false,
            created_at: at,
            updated_at: at,
        });
        let once = self.write("key.create", account, |locked, audit| {
            locked.state(account)?;
            let limited = (new.limits != KeyLimits::default()).then_some(new.limits);
            let created = Record::KeyCreated(Arc::clone(&key));
            let records =
                [Some(created), limits_of(&key, limited), Some(audit.act(account, key.id))];
            Ok(((), records.into_iter().flatten().collect()))
        });
        let once = once.await?;
        let (_, repeated) = once.place();
        let value = match once {
            IdempotentOutcome::Applied((), _) => (Some(secret), key),
            IdempotentOutcome::Replayed { subject, .. } => {
                (None, self.ledger.require_key(parsed(&subject)?)?)
            }
        };
        Ok(WriteOutcome { value, repeated })
    }

    /// Changes a key. The change counts for calls that begin from now on.
    ///
    /// # Errors
    /// [`LedgerError::UnknownKey`], [`LedgerError::Invalid`], [`LedgerError::OtherRequest`] and
    /// [`LedgerError::Stopped`].
    pub async fn update_key(
        &self,
        id: KeyId,
        patch: KeyPatch,
    ) -> Result<WriteOutcome<Arc<Key>>, LedgerError> {
        if let Some(name) = &patch.name {
            check_text(name)?;
        }
        check_key_models(patch.models.as_ref().and_then(Option::as_deref))?;
        let key = self.ledger.fresh(|| self.ledger.key_by_id(id)).await?;
        let account = key.ok_or(LedgerError::UnknownKey(id))?.account;
        let once = self.write("key.update", account, |_, audit| {
            // Read again under the lock, so that no change made meanwhile is undone.
            let mut key = Key::clone(&*self.ledger.require_key(id)?);
            key.name = patch.name.clone().unwrap_or(key.name);
            key.models = patch.models.clone().unwrap_or(key.models);
            key.expires_at = patch.expires_at.unwrap_or(key.expires_at);
            key.disabled = patch.disabled.unwrap_or(key.disabled);
            key.updated_at = UnixMs::now();
            let key = Arc::new(key);
            let limits = patch.limits.of(self.ledger.key_limits(id));
            check_limits(&limits)?;
            let limited = (patch.limits != KeyLimitsPatch::default()).then_some(limits);
            let updated = Record::KeyUpdated(Arc::clone(&key));
            let records = [Some(updated), limits_of(&key, limited), Some(audit.act(account, id))];
            Ok((key, records.into_iter().flatten().collect()))
        });
        let once = once.await?;
        let (_, repeated) = once.place();
        let value = match once {
            IdempotentOutcome::Applied(key, _) => key,
            IdempotentOutcome::Replayed { .. } => self.ledger.require_key(id)?,
        };
        Ok(WriteOutcome { value, repeated })
    }

    /// Does what `decide` says unless it was done before.
    pub(crate) async fn give(
        &self,
        (what, account, id): (&'static str, AccountId, &str),
        decide: impl Fn(&LockedShards<'_>) -> Result<Decision, LedgerError>,
    ) -> Result<WriteReceipt, LedgerError> {
        let once = self.write(what, account, |locked, audit| {
            Ok(match decide(locked)? {
                Decision::Repeated(seq) => (Some(seq), Vec::new()),
                Decision::New(record) => (None, vec![record, audit.act(account, id)]),
            })
        });
        // The act stands behind it.
        Ok(match once.await? {
            IdempotentOutcome::Applied(Some(seq), _) => WriteReceipt { seq, repeated: true },
            IdempotentOutcome::Applied(None, last) => {
                WriteReceipt { seq: last.saturating_sub(1), repeated: false }
            }
            IdempotentOutcome::Replayed { seq, .. } => {
                WriteReceipt { seq: seq.saturating_sub(1), repeated: true }
            }
        })
    }
}

/// Writes without an actor, for tests and the demo.
impl Ledger {
    /// See [`ActorScope::create_account`].
    ///
    /// # Errors
    /// As there.
    pub async fn create_account(&self, name: &str) -> Result<Account, LedgerError> {
        Ok(self.by_gateway().create_account(name).await?.value)
    }

    /// See [`ActorScope::grant`].
    ///
    /// # Errors
    /// As there.
    pub async fn grant(
        &self,
        account: AccountId,
        id: &str,
        amount: Nanousd,
    ) -> Result<WriteReceipt, LedgerError> {
        self.by_gateway().grant(account, id, amount).await
    }

    /// See [`ActorScope::refund`].
    ///
    /// # Errors
    /// As there.
    pub async fn refund(
        &self,
        account: AccountId,
        id: &str,
        hold: HoldId,
        amount: Nanousd,
    ) -> Result<WriteReceipt, LedgerError> {
        self.by_gateway().refund(account, id, hold, amount).await
    }

    /// See [`ActorScope::create_key`].
    ///
    /// # Errors
    /// As there.
    pub async fn create_key(
        &self,
        account: AccountId,
        new: NewKey,
    ) -> Result<(Secret, Arc<Key>), LedgerError> {
        match self.by_gateway().create_key(account, new).await?.value {
            (Some(secret), key) => Ok((secret, key)),
            // Without an id nothing is taken for a repetition.
            (None, _) => Err(LedgerError::OtherRequest),
        }
    }

    /// See [`ActorScope::update_key`].
    ///
    /// # Errors
    /// As there.
    pub async fn update_key(&self, id: KeyId, patch: KeyPatch) -> Result<Arc<Key>, LedgerError> {
        Ok(self.by_gateway().update_key(id, patch).await?.value)
    }

    fn require_key(&self, id: KeyId) -> Result<Arc<Key>, LedgerError> {
        self.key_by_id(id).ok_or(LedgerError::UnknownKey(id))
    }
}

/// The record of what a key may use from here on, if that changes.
fn limits_of(key: &Key, limits: Option<KeyLimits>) -> Option<Record> {
    let Key { account, id, updated_at, .. } = *key;
    limits.map(|limits| Record::KeyLimited { account, key: id, limits, at: updated_at })
}

fn check_limits(limits: &KeyLimits) -> Result<(), LedgerError> {
    if limits.are_sound() {
        return Ok(());
    }
    Err(LedgerError::Invalid("a limit of spending cannot be below zero"))
}
