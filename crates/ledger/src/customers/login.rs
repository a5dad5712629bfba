//! Logins and sessions of customers.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use crate::records::login::{Login, SessionId};
use std::sync::Arc;

use crate::memory::Ledger;
use crate::memory::act::{ActorScope, WriteOutcome};
use crate::records::error::LedgerError;
use crate::records::key::Key;
use crate::records::record::Record;
use crate::rules::core::Core;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::AccountId;
use tollgate_types::secret::KeyHash;

/// The longest address of a login, in bytes (RFC 5321, section 4.5.3.1.3, without the brackets).
const EMAIL_BYTES_MAX: usize = 254;
/// The longest PHC string of a password, in bytes; those of Argon2id take some 100.
const PASSWORD_BYTES_MAX: usize = 512;
/// Prefix of every accepted password hash. Nothing else is stored, so a plain-text password is
/// refused by mistake.
const PASSWORD_PREFIX: &str = "$argon2id$";
/// Ended sessions of one account that are kept. Whoever logs out more often within the life of a
/// session logs out everywhere.
const ENDED_SESSIONS_MAX: usize = 1000;

/// An address as it is stored and compared: trimmed and in lower case.
///
/// # Errors
/// [`LedgerError::Invalid`] for what has not exactly one `@` with something on both sides, has white
/// space or control characters, or is longer than 254 bytes.
pub fn normal_email(typed: &str) -> Result<String, LedgerError> {
    let email = typed.trim().to_lowercase();
    let is_one = email.split_once('@').is_some_and(|(local, domain)| {
        !local.is_empty() && !domain.is_empty() && !domain.contains('@')
    });
    let is_odd = |c: char| c.is_control() || c.is_whitespace();
    if !is_one || email.len() > EMAIL_BYTES_MAX || email.contains(is_odd) {
        return Err(LedgerError::Invalid(
            "an e-mail address has one `@`, no spaces and at most 254 bytes",
        ));
    }
    Ok(email)
}

/// Refuses anything except an Argon2id hash.
pub(crate) fn check_password(hash: &str) -> Result<(), LedgerError> {
    if hash.starts_with(PASSWORD_PREFIX)
        && hash.len() <= PASSWORD_BYTES_MAX
        && hash.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Ok(());
    }
    Err(LedgerError::Invalid("a password is stored as the PHC string of its Argon2id hash"))
}

impl Ledger {
    /// The key that was presented, if it exists, and whether its account is suspended.
    #[must_use]
    pub fn presented(&self, hash: &KeyHash) -> Option<(Arc<Key>, bool)> {
        let keys = self.keys.read();
        let key = Arc::clone(keys.by_hash.get(hash)?);
        let suspended = keys.suspended.contains(&key.account);
        Some((key, suspended))
    }

    /// The login of an account, if it has one.
    #[must_use]
    pub fn login(&self, account: AccountId) -> Option<Arc<Login>> {
        let core = self.shard(account).lock();
        core.accounts.get(&account)?.customers.login.clone()
    }

    /// The login of this address, however it is written.
    #[must_use]
    pub fn login_by_email(&self, email: &str) -> Option<Arc<Login>> {
        let email = normal_email(email).ok()?;
        let account = self.emails.lock().get(&email).copied()?;
        // The address may have moved to another account between the two locks.
        self.login(account).filter(|login| login.email == email)
    }

    /// True if a session issued at this time must be refused: it was logged out, the login changed
    /// since, or the login is missing.
    #[must_use]
    pub fn is_session_over(
        &self,
        account: AccountId,
        session: &SessionId,
        issued_at: UnixMs,
    ) -> bool {
        let core = self.shard(account).lock();
        let Some(state) = core.accounts.get(&account) else { return true };
        let is_void = state.customers.login.as_ref().is_none_or(|login| issued_at < login.since);
        is_void || state.customers.ended.contains_key(session)
    }

    /// True if an operator's session was logged out.
    #[must_use]
    pub fn is_operators_session_over(&self, session: &SessionId) -> bool {
        self.shard(AccountId::OPERATOR).lock().operator.ended.contains_key(session)
    }

    /// Removes expired sessions and remembered requests.
    pub(crate) fn forget_people(&self, now: UnixMs) {
        self.ids.lock().forget(now);
        for shard in &self.shards {
            let mut core = shard.lock();
            core.operator.ended.retain(|_, until| *until > now);
            for state in core.accounts.values_mut() {
                state.customers.ended.retain(|_, until| *until > now);
            }
        }
    }
}

impl ActorScope<'_> {
    /// Sets how the customer of an account logs in: the address, and the PHC string of the password's
    /// Argon2id hash. Sessions from before are void.
    ///
    /// # Errors
    /// [`LedgerError::EmailTaken`], [`LedgerError::UnknownAccount`], [`LedgerError::Invalid`],
    /// [`LedgerError::OtherRequest`] and [`LedgerError::Stopped`].
    pub async fn set_login(
        &self,
        account: AccountId,
        email: &str,
        password: &str,
    ) -> Result<WriteOutcome<Arc<Login>>, LedgerError> {
        check_password(password)?;
        let email = normal_email(email)?;
        let once = self.write("login.set", account, |locked, audit| {
            let before = locked.state(account)?.customers.login.as_ref();
            // Every write of an address holds the lock of the operator's shard, so the check cannot be stale.
            if self.ledger.emails.lock().get(&email).is_some_and(|owner| *owner != account) {
                return Err(LedgerError::EmailTaken);
            }
            // A clock that was set back would leave sessions valid that this is to end.
            let since = UnixMs::now().max(before.map_or(UnixMs(0), |login| login.since));
            let password = password.to_owned();
            let login = Login { account, email: email.clone(), password, since };
            Ok(((), vec![Record::LoginSet(Arc::new(login)), audit.act(account, account)]))
        });
        let (_, repeated) = once.await?.place();
        let value = self.ledger.login(account).ok_or(LedgerError::UnknownAccount(account))?;
        Ok(WriteOutcome { value, repeated })
    }

    /// Logs a session out: it is refused until it would have ended, and forgotten after that.
    ///
    /// # Errors
    /// [`LedgerError::UnknownAccount`] where the account has no login, and [`LedgerError::Stopped`].
    pub async fn end_session(
        &self,
        account: AccountId,
        session: SessionId,
        until: UnixMs,
    ) -> Result<(), LedgerError> {
        self.write("session.end", account, |locked, audit| {
            let record = ending(locked.core(account), account, session, until)?;
            Ok(((), vec![record, audit.act(account, account)]))
        })
        .await?;
        Ok(())
    }
}

impl ActorScope<'_> {
    /// Logs a session of an operator out, for every node and over every restart: it is refused until it
    /// would have ended, and forgotten after that.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] and [`LedgerError::Stopped`].
    pub async fn end_operators_session(
        &self,
        session: SessionId,
        until: UnixMs,
    ) -> Result<(), LedgerError> {
        let account = AccountId::OPERATOR;
        self.write("session.end", account, |_, audit| {
            let ended = Record::SessionEnded { account, session, until, at: audit.at() };
            Ok(((), vec![ended, audit.act(account, account)]))
        })
        .await?;
        Ok(())
    }
}

/// The record that ends a session; where too many have ended, the one that ends all.
fn ending(
    core: &Core,
    account: AccountId,
    session: SessionId,
    until: UnixMs,
) -> Result<Record, LedgerError> {
    let unknown = LedgerError::UnknownAccount(account);
    let customers = &core.accounts.get(&account).ok_or(unknown.clone())?.customers;
    let login = customers.login.as_ref().ok_or(unknown)?;
    let at = UnixMs::now();
    let open = customers.ended.values().filter(|until| **until > at).count();
    Ok(if open < ENDED_SESSIONS_MAX {
        Record::SessionEnded { account, session, until, at }
    } else {
        // Sessions that were issued within this millisecond end as well.
        let since = UnixMs(at.0.saturating_add(1)).max(login.since);
        Record::LoginSet(Arc::new(Login { since, ..Login::clone(login) }))
    })
}
