//! What operators do: open accounts, give and give back money, make and change keys.
//!
//! Each of these is on disk before it returns.

use std::sync::Arc;

use crate::clock::UnixMs;
use crate::ledger::core::{Core, Decision};
use crate::ledger::error::LedgerError;
use crate::ledger::record::{Key, Record};
use crate::ledger::{Account, AccountId, HoldId, KeyId, KeyLimits, KeyLimitsPatch, Ledger, Seq};
use crate::money::Nanousd;
use crate::secret::{KeyHash, Secret};

/// The longest name or id that is taken, in bytes.
const TEXT_BYTES_MAX: usize = 256;
/// The most models that one key can be limited to: more is a sign that it should not be limited.
const KEY_MODELS_MAX: usize = 100;

/// A grant or refund that is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Its place in the journal.
    pub seq: Seq,
    /// Whether it was made by an earlier call with the same id; nothing happened now.
    pub repeated: bool,
}

/// A key to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewKey {
    /// What its owner calls it.
    pub name: String,
    /// The models that it may call; `None` for all.
    pub models: Option<Vec<String>>,
    /// When it ends; `None` for never.
    pub expires_at: Option<UnixMs>,
    /// What it may use.
    pub limits: KeyLimits,
}

/// Changes to a key; `None` leaves a field as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPatch {
    /// A new name.
    pub name: Option<String>,
    /// Another choice of models; `Some(None)` for all.
    pub models: Option<Option<Vec<String>>>,
    /// Another end; `Some(None)` for never.
    pub expires_at: Option<Option<UnixMs>>,
    /// Switched off, or on again.
    pub disabled: Option<bool>,
    /// Other limits.
    pub limits: KeyLimitsPatch,
}

impl Ledger {
    /// Opens an account without money.
    ///
    /// # Errors
    /// [`LedgerError::Invalid`] for a name that is empty or longer than 256 bytes, and
    /// [`LedgerError::Stopped`].
    pub async fn create_account(&self, name: &str) -> Result<Account, LedgerError> {
        check_text(name)?;
        let (id, at) = (AccountId::random(), UnixMs::now());
        let record = Record::AccountCreated { account: id, name: name.to_owned(), at };
        let seq = self.commit(&mut self.shard(id).lock(), record)?;
        self.journal.durable(seq).await?;
        Ok(Account::new(id, name.to_owned(), at))
    }

    /// Gives `amount` to an account, once per `id`: repeating a call is safe.
    ///
    /// # Errors
    /// [`LedgerError::Conflict`] when the id was used with another amount,
    /// [`LedgerError::UnknownAccount`], [`LedgerError::Invalid`] and [`LedgerError::Stopped`].
    pub async fn grant(
        &self,
        account: AccountId,
        id: &str,
        amount: Nanousd,
    ) -> Result<Granted, LedgerError> {
        check_text(id)?;
        self.once(account, |core| core.decide_grant(account, id, amount, UnixMs::now())).await
    }

    /// Gives back `amount` of what the settled `hold` cost, once per `id`.
    ///
    /// # Errors
    /// [`LedgerError::UnknownHold`] when the account has no settled hold of this id,
    /// [`LedgerError::RefundTooLarge`], and what [`Ledger::grant`] fails with.
    pub async fn refund(
        &self,
        account: AccountId,
        id: &str,
        hold: HoldId,
        amount: Nanousd,
    ) -> Result<Granted, LedgerError> {
        check_text(id)?;
        if self.account(account).is_none() {
            return Err(LedgerError::UnknownAccount(account));
        }
        let known = self.shard(account).lock().refund(account, id);
        let charged = match known {
            // Whether it is the same refund is decided below; its charge is not asked for again.
            Some(_) => Some(Nanousd::ZERO),
            None => self.query(move |store| store.charged(account, hold)).await?,
        };
        let charged = charged.ok_or(LedgerError::UnknownHold(hold))?;
        let refund =
            |core: &Core| core.decide_refund((account, id), (hold, charged), amount, UnixMs::now());
        self.once(account, refund).await
    }

    /// Makes an API key. The secret is shown this once; only its hash is kept.
    ///
    /// # Errors
    /// [`LedgerError::UnknownAccount`], [`LedgerError::Invalid`] and [`LedgerError::Stopped`].
    pub async fn create_key(
        &self,
        account: AccountId,
        new: NewKey,
    ) -> Result<(Secret, Arc<Key>), LedgerError> {
        check_text(&new.name)?;
        check_models(new.models.as_deref())?;
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
        let seq = {
            let mut core = self.shard(account).lock();
            if core.account(account).is_none() {
                return Err(LedgerError::UnknownAccount(account));
            }
            let limited = (new.limits != KeyLimits::default()).then_some(new.limits);
            let created = Record::KeyCreated(Arc::clone(&key));
            self.set_key(&mut core, created, &key, limited)?
        };
        self.journal.durable(seq).await?;
        Ok((secret, key))
    }

    /// Changes a key. The change counts for calls that begin from now on.
    ///
    /// # Errors
    /// [`LedgerError::UnknownKey`], [`LedgerError::Invalid`] and [`LedgerError::Stopped`].
    pub async fn update_key(&self, id: KeyId, patch: KeyPatch) -> Result<Arc<Key>, LedgerError> {
        if let Some(name) = &patch.name {
            check_text(name)?;
        }
        check_models(patch.models.as_ref().and_then(Option::as_deref))?;
        let account = self.key_by_id(id).ok_or(LedgerError::UnknownKey(id))?.account;
        let (seq, key) = {
            let mut core = self.shard(account).lock();
            // Read again under the lock, so that no change made meanwhile is undone.
            let mut key = Key::clone(&*self.key_by_id(id).ok_or(LedgerError::UnknownKey(id))?);
            key.name = patch.name.unwrap_or(key.name);
            key.models = patch.models.unwrap_or(key.models);
            key.expires_at = patch.expires_at.unwrap_or(key.expires_at);
            key.disabled = patch.disabled.unwrap_or(key.disabled);
            key.updated_at = UnixMs::now();
            let key = Arc::new(key);
            let limits = patch.limits.of(self.key_limits(id));
            check_limits(&limits)?;
            let limited = (patch.limits != KeyLimitsPatch::default()).then_some(limits);
            let updated = Record::KeyUpdated(Arc::clone(&key));
            let seq = self.set_key(&mut core, updated, &key, limited)?;
            (seq, key)
        };
        self.journal.durable(seq).await?;
        Ok(key)
    }

    /// Writes what a key is from here on and, if they change, its limits, and lets calls see both.
    fn set_key(
        &self,
        core: &mut Core,
        record: Record,
        key: &Arc<Key>,
        limits: Option<KeyLimits>,
    ) -> Result<Seq, LedgerError> {
        let limited = limits.map(|limits| Record::KeyLimited {
            account: key.account,
            key: key.id,
            limits,
            at: key.updated_at,
        });
        let seq = self.commit_all(core, [record].into_iter().chain(limited))?;
        let mut keys = self.keys.write();
        keys.insert(Arc::clone(key));
        if let Some(limits) = limits {
            keys.limit(key.id, limits);
        }
        Ok(seq)
    }

    /// Does what `decide` says unless it was done before, and waits until it is on disk either way:
    /// a repeated call may overtake the first one's flush.
    async fn once(
        &self,
        account: AccountId,
        decide: impl FnOnce(&Core) -> Result<Decision, LedgerError>,
    ) -> Result<Granted, LedgerError> {
        let granted = {
            let mut core = self.shard(account).lock();
            match decide(&core)? {
                Decision::Repeated(seq) => Granted { seq, repeated: true },
                Decision::New(record) => {
                    Granted { seq: self.commit(&mut core, record)?, repeated: false }
                }
            }
        };
        self.journal.durable(granted.seq).await?;
        Ok(granted)
    }
}

fn check_text(text: &str) -> Result<(), LedgerError> {
    if text.is_empty() || text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(LedgerError::Invalid(
            "names and ids have 1 to 256 bytes and no control characters",
        ));
    }
    Ok(())
}

fn check_models(models: Option<&[String]>) -> Result<(), LedgerError> {
    let models = models.unwrap_or_default();
    if models.len() > KEY_MODELS_MAX {
        return Err(LedgerError::Invalid("a key can be limited to at most 100 models"));
    }
    models.iter().try_for_each(|model| check_text(model))
}

fn check_limits(limits: &KeyLimits) -> Result<(), LedgerError> {
    if limits.are_sound() {
        return Ok(());
    }
    Err(LedgerError::Invalid("a limit of spending cannot be below zero"))
}
